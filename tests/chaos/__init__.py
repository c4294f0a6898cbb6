"""A large run while its worker and its server are killed again and again, and what must hold afterwards."""

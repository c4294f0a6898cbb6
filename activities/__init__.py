"""Everything that touches the world: evaluation, sandbox, models, checks, the store. Activities evaluate;
workflows only schedule."""

"""The main example: which licences do the Python distributions of an environment come under?"""

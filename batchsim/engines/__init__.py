"""How it is answered: the engines. Each takes a Plan and returns a Log."""

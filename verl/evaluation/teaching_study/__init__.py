"""Studies of teachers: arms of training in the teaching world, each over several seeds, evaluated and compared."""

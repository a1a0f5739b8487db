"""From `./launch.sh` and `./launch_with_server.sh` to one plain command of an entry point, with its students served."""

#!/bin/bash
# Starts, stops and reports the private server: server.sh start|stop|status [--folder F] [mariadbd options].
exec python3 "$(dirname "$0")/private_server.py" "$@"

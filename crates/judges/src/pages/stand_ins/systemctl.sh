#!/bin/sh
# Stand-in for systemctl: does what the lines of /etc/systemd/system/UNIT.service say, without its sandbox.
set -e
state=/run/service
mkdir -p "$state"
while case $1 in -*) true ;; *) false ;; esac; do shift; done
order=$1
shift || true
for word in "$@"; do
    case $word in
    --now) now=yes ;;
    -*) ;;
    *) unit=${word%.service} ;;
    esac
done
file=/etc/systemd/system/$unit.service

line() {
    sed -n "s/^$1=//p" "$file" | tail -n 1
}

# The service's main process; an upgrade has made it another one.
main() {
    # One that has ended has no command line any more.
    pid=$(pgrep -o -f '^/usr/local/bin/polder run')
}

start() {
    main && return 0
    [ -f "$file" ] || { echo "Unit $unit.service not found." >&2; exit 5; }
    mkdir -p "/run/$(line RuntimeDirectory)"
    # shellcheck disable=SC2046
    setsid $(line ExecStart) >> "$state/log" 2>&1 < /dev/null &
    tries=0
    until polder show ports > /dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 1 ] && ! main || [ "$tries" -gt 200 ]; then
            echo "Job for $unit.service failed. See \"journalctl -xeu $unit.service\" for details." >&2
            exit 1
        fi
        sleep 0.05
    done
}

stop() {
    main || return 0
    kill -TERM "$pid"
    while main; do sleep 0.02; done
}

case $order in
start) start ;;
stop) stop ;;
restart) stop && start ;;
reload)
    main || { echo "$unit.service is not active, cannot reload." >&2; exit 1; }
    $(line ExecReload) ;;
enable)
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -sf "$file" /etc/systemd/system/multi-user.target.wants/
    [ -z "$now" ] || start ;;
disable)
    rm -f "/etc/systemd/system/multi-user.target.wants/$unit.service"
    [ -z "$now" ] || stop ;;
is-active) if main; then echo active; else echo inactive; exit 3; fi ;;
status) if main; then echo "● $unit.service - active (running), Main PID: $pid"; else echo "○ $unit.service - inactive (dead)"; exit 3; fi ;;
daemon-reload) ;;
*) echo "systemctl $order has no stand-in" >&2; exit 1 ;;
esac

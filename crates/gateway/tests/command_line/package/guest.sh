#!/bin/sh
# Runs in a guest, as a service of systemd: a package is installed, started, reloaded, upgraded and purged.
# The console says how far it came; the machine is switched off at the end.
exec </dev/null >/dev/console 2>&1
trap 'code=$?; set +e; [ $code = 0 ] || { systemctl --no-pager status polder; timeout 20 journalctl --no-pager -u polder | tail -n 40; }
      echo "guest: ended with $code"; systemctl poweroff --force --force' EXIT
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
step() { echo "guest: $*"; }
state() { systemctl is-active polder || true; }
pid() { systemctl show --property=MainPID --value polder; }
version() { dpkg-query --show --showformat='${Version}' polder; }
# A command that must fail.
refused() { if "$@"; then step "succeeds: $*"; exit 1; fi; }

for module in /pd/modules/*.ko; do insmod "$module"; done
ip link add lan0 type veth peer name far0
ip link set lan0 up
ip link set far0 up

dpkg --install /pd/first/polder.deb
[ "$(state)" = inactive ]
[ "$(systemctl is-enabled polder || true)" = disabled ]
getent group polder
[ -e /usr/lib/udev/rules.d/70-polder-usb.rules ]
step "installed $(version)"

cat >/etc/polder/gateway.toml <<'END'
version = 1
[port.lan]
interface = "lan0"
[port.host]
tap = "host0"
[bridge.br0]
members = ["lan", "host"]
END
polder check
systemctl start polder
[ "$(state)" = active ]
polder show ports
step "runs: $(systemctl show --property=StatusText,Type,NotifyAccess --value polder | tr '\n' ' ')"

sed -i 's/^members/ageing_seconds = 77\n&/' /etc/polder/gateway.toml
refused polder diff
systemctl reload polder
polder diff
sed -i 's/^members/nonsense = 1\n&/' /etc/polder/gateway.toml
refused systemctl reload polder
[ "$(state)" = active ]
sed -i '/nonsense/d' /etc/polder/gateway.toml
step "reloads, and refuses what is wrong"

# The watchdog would end a main process that is not the one that feeds it.
before=$(pid)
polder upgrade
[ "$(state)" = active ]
after=$(pid)
[ "$after" != "$before" ]
grep -q 'polder\.service' "/proc/$after/cgroup"
sleep 12
[ "$(state)" = active ] && [ "$(pid)" = "$after" ]
polder show ports >/dev/null
step "goes on as another process"

before=$(pid)
kill -KILL "$before"
# Until its death is noticed, the service is active; then its process is 0.
for i in $(seq 60); do [ "$(pid)" != "$before" ] && [ "$(state)" = active ] && break; sleep 1; done
[ "$(state)" = active ]
step "is restarted when it is killed"

before=$(pid)
restarts=$(systemctl show --property=ActiveEnterTimestampMonotonic --value polder)
dpkg --install /pd/second/polder.deb
[ "$(state)" = active ]
[ "$(pid)" != "$before" ]
[ "$(systemctl show --property=ActiveEnterTimestampMonotonic --value polder)" = "$restarts" ]
polder show ports >/dev/null
step "upgraded to $(version)"

dpkg --purge polder
[ "$(state)" = inactive ]
[ ! -e /usr/bin/polder ]
[ ! -e /usr/lib/systemd/system/polder.service ] && [ ! -e /lib/systemd/system/polder.service ]
[ -e /etc/polder/gateway.toml ]
[ ! -e /sys/class/net/host0 ]
ip link show lan0
step "purged"

#!/bin/sh
# Installs what the tests need beside Go: Debian packages (root only) and, below tdlib and mtcute, npm packages.
# What is there already is left alone, and so is everything when nothing is missing. No service is started or enabled.
# Exits with 1, and says what is missing, where it may not or cannot install.
set -eu
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps nginx and ip, out of the way of users
export DEBIAN_FRONTEND=noninteractive

say() { echo "install.sh: $*" >&2; }

compiles() { printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | gcc -x c -o /dev/null - 2>/dev/null; }

# The packages whose tools are missing.
missing() {
	while read -r tool packages; do
		command -v "$tool" >/dev/null || echo "$packages"
	done <<-LIST
		nginx    nginx
		haproxy  haproxy
		curl     curl
		openssl  openssl
		ip       iproute2
		unshare  util-linux
		node     nodejs
		npm      npm
		zbarimg  zbar-tools
	LIST
	[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || echo libnginx-mod-stream
	compiles || echo gcc libc6-dev # the race detector is linked by gcc
}

# Keeps what is installed from starting its services, as long as this script runs.
forbid_services() {
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		trap 'rm -f "$policy"' EXIT
		chmod +x "$policy"
	fi
}

# A package enables its service for the next boot, policy or not.
disable_service() {
	if command -v systemctl >/dev/null; then
		systemctl disable "$1" >/dev/null 2>&1 || true
	fi
}

install_packages() {
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		say "missing, and installed by root only, on Debian or the like: apt-get install --no-install-recommends $*"
		exit 1
	fi
	forbid_services
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "$@"
	for service in nginx haproxy; do
		case " $* " in *" $service "*) disable_service "$service" ;; esac
	done
}

tdlib_loads() { (cd tdlib && node -e 'require("tdl"); require("fs").accessSync(require("prebuilt-tdlib").getTdjson())' 2>/dev/null); }

# Not npm ci: the lock file of one platform lacks the builds for others, and npm ci refuses that.
install_tdlib() {
	(cd tdlib && npm install --ignore-scripts --no-save --no-audit --no-fund --loglevel=error)
	if ! tdlib_loads; then
		say "missing: tdl and prebuilt-tdlib do not load after npm install in interop/tdlib (node $(node --version))"
		exit 1
	fi
}

packages=$(missing)
if [ -n "$packages" ]; then
	# shellcheck disable=SC2086 # a list of names
	install_packages $packages
fi
tdlib_loads || install_tdlib
(cd mtcute && node -e 'import("@mtcute/node")' 2>/dev/null || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)

#!/usr/bin/env bash
# Runs programs in small emulated machines that have a software RDMA device (rxe). Needs Debian on x86-64.
#
#   guest.sh FOLDER prepare               install the tools, and build the image in this folder, once
#   guest.sh FOLDER alone JOB FAULTS      run one guest
#   guest.sh FOLDER pair JOB FAULTS       run two guests on one network: a server 10.9.0.1 and a client 10.9.0.2
#
# JOB is a folder: its files are in /job of the guests, and /job/run is executed, with ROLE set. FAULTS are arguments of
# tc netem with _ for blanks, or empty. The output is that of the jobs; each line of a server begins with "server: ".
# The exit code is that of the job, or 77 with a line "cannot run: REASON" if the machine lacks something.
set -euo pipefail
folder=$1
command=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# The most seconds that a guest may take.
limit=${GUEST_LIMIT:-240}

cannot_run() {
    echo "cannot run: $*"
    exit 77
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_tools() {
    [ "$(uname -m)" = x86_64 ] || cannot_run "the guests are x86-64 machines"
    command -v apt-get >/dev/null || cannot_run "it needs the packages of Debian"
    as_root true 2>/dev/null || cannot_run "only root can install packages"
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v cpio >/dev/null || missing+=(cpio)
    command -v modprobe >/dev/null || [ -x /sbin/modprobe ] || missing+=(kmod)
    command -v xz >/dev/null || missing+=(xz-utils)
    command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1 || missing+=(busybox-static)
    command -v rdma >/dev/null || [ -x /usr/bin/rdma ] || missing+=(iproute2)
    [ -n "$(provider)" ] || missing+=(libibverbs1 ibverbs-providers)
    [ ${#missing[@]} -eq 0 ] && return
    as_root apt-get -o Acquire::Retries=3 -qq update || cannot_run "the packages of Debian cannot be fetched"
    # A package that is newer than the release, and that would have to go, stays. Then the tool is taken from backports.
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -qq install -y
        --no-install-recommends --no-remove)
    as_root "${install[@]}" "${missing[@]}" >/dev/null 2>&1 && return
    install_from_backports "${missing[@]}"
}

# Installs packages of the versions of those that are already there, with the lists of backports in a folder of our own.
install_from_backports() {
    local release uri lists=$folder/apt version
    # shellcheck source=/dev/null
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    uri=$(sed -n 's/^URIs: *//p; s/^deb \([^[ ][^ ]*\) .*/\1/p' /etc/apt/sources.list.d/debian.sources \
        /etc/apt/sources.list 2>/dev/null | head -1 || true)
    [ -n "$uri" ] || cannot_run "the packages of Debian cannot be fetched"
    mkdir -p "$lists/lists/partial" "$lists/archives/partial" "$lists/parts"
    printf 'Types: deb\nURIs: %s\nSuites: %s %s-backports\nComponents: main\nSigned-By: %s\n' "$uri" "$release" \
        "$release" /usr/share/keyrings/debian-archive-keyring.gpg >"$lists/parts/all.sources"
    local options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$lists/parts"
        -o "Dir::State::lists=$lists/lists" -o "Dir::Cache::archives=$lists/archives" -o APT::Sandbox::User=root)
    as_root apt-get "${options[@]}" -qq update || cannot_run "the packages of Debian cannot be fetched"
    version=$(dpkg-query -W -f '${Version}' qemu-utils 2>/dev/null || true)
    local wanted=() package
    for package in "$@"; do
        if [ "$package" = qemu-system-x86 ] && [ -n "$version" ]; then package=$package=$version; fi
        wanted+=("$package")
    done
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" -qq install -y --no-install-recommends \
        --no-remove -t "$release-backports" "${wanted[@]}" >/dev/null
}

# Prints the path of rxe's part of libibverbs.
provider() {
    find /usr/lib -name 'librxe-rdmav*.so' 2>/dev/null | head -1
}

# Copies a program to a place in a folder, and the libraries that it needs to their own places there.
copy_program() {
    local program=$1 root=$2 place=$3 library
    install -D -m 755 "$program" "$root$place"
    ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | sort -u | while read -r library; do
        [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
    done || true
}

# Prints an archive of a folder as the kernel reads it. Archives can follow each other.
archive() {
    (cd "$1" && find . -mindepth 1 | cpio -o -H newc -R 0:0 --quiet) | gzip -1
}

prepare() {
    [ -e "$folder/ready" ] && return
    install_tools
    local kernel system=$folder/system root=$folder/root version tool module file verbs
    kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)/\1/p' | head -1)
    [ -n "$kernel" ] || cannot_run "there is no kernel package linux-image-amd64"
    rm -rf "$system" "$root" "$folder/packages"
    mkdir -p "$system" "$root"/{bin,proc,sys,dev,tmp,modules,etc/libibverbs.d} "$folder/packages"
    (cd "$folder/packages" && apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 -qq download "$kernel") ||
        cannot_run "the kernel package $kernel cannot be fetched"
    dpkg-deb -x "$folder"/packages/*.deb "$system"
    version=${kernel#linux-image-}
    cp "$system/boot/vmlinuz-$version" "$folder/kernel"
    [ -e "$system/lib" ] || ln -s usr/lib "$system/lib"
    PATH=$PATH:/sbin:/usr/sbin
    depmod -b "$system" "$version"
    for module in virtio_pci virtio_net veth crc32_generic rdma_rxe ib_uverbs sch_netem; do
        modprobe -d "$system" -S "$version" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
        module=$(basename "$file" .xz)
        if [ "$module" = "$(basename "$file")" ]; then cp "$file" "$root/modules/"; else xz -dc "$file" >"$root/modules/$module"; fi
        echo "$module" >>"$root/modules/order"
    done
    install -m 755 "$(command -v busybox)" "$root/bin/busybox"
    for tool in ip tc rdma; do copy_program "$(command -v "$tool")" "$root" "/tools/$tool"; done
    verbs=$(ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .*=> //p' | head -1)
    copy_program "$verbs" "$root" "$verbs"
    file=$(provider)
    copy_program "$file" "$root" "$file"
    cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
    install -m 755 "$here/init" "$root/init"
    archive "$root" >"$folder/image"
    rm -rf "$system" "$folder/packages"
    touch "$folder/ready"
}

# Runs a guest in this role. Prints the output of its job, and returns its exit code.
guest() {
    local role=$1 job=$2 faults=$3 wire=$4 work network=(-nic none) code file
    work=$(mktemp -d "$folder/guest.XXXXXX")
    mkdir -p "$work/files/job"
    for file in "$job"/*; do
        if ldd "$file" >/dev/null 2>&1; then
            copy_program "$file" "$work/files" "/job/$(basename "$file")"
        else
            cp "$file" "$work/files/job/"
        fi
    done
    { cat "$folder/image" && archive "$work/files"; } >"$work/image"
    local wired="stream,id=net,addr.type=unix,addr.path=$wire" card=virtio-net-pci,netdev=net,romfile=
    case $role in
    server) network=(-netdev "$wired,server=on" -device "$card,mac=52:54:00:00:00:01") ;;
    client) network=(-netdev "$wired,server=off" -device "$card,mac=52:54:00:00:00:02") ;;
    esac
    timeout -k 5 "$limit" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -m 1024 -smp 2 -nodefaults \
        -no-user-config -no-reboot -display none -serial "file:$work/console" "${network[@]}" -kernel "$folder/kernel" \
        -initrd "$work/image" </dev/null -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on \
skep.role=$role skep.faults=$faults" || true
    tr -d '\r' <"$work/console" >"$work/text"
    sed -n '/^GUEST-BEGIN/,/^GUEST-END/p' "$work/text" | grep -v '^GUEST-' || true
    code=$(sed -n 's/^GUEST-END //p' "$work/text")
    [ -n "$code" ] || { echo "the $role did not end in $limit s:"; tail -30 "$work/text"; }
    rm -rf "$work"
    return "${code:-1}"
}

case $command in
prepare) prepare ;;
alone)
    prepare
    guest alone "$3" "$4" ""
    ;;
pair)
    prepare
    wire=$(mktemp -u "$folder/wire.XXXXXX")
    { guest server "$3" "$4" "$wire" | sed 's/^/server: /'; } &
    server=$!
    for _ in $(seq 100); do [ -S "$wire" ] && break || sleep 0.1; done
    code=0
    guest client "$3" "$4" "$wire" || code=$?
    wait "$server" || code=$?
    rm -f "$wire"
    exit "$code"
    ;;
*)
    sed -n '2,12p' "$0"
    exit 2
    ;;
esac

#!/bin/sh
# Fetch the sources of the four libraries that the wasm build compiles itself, from the distribution's own source packages:
#     wasm/sources.sh FOLDER
# leaves FOLDER/{libzstd,jansson,pcre2,utf8proc}. The machine's apt configuration and state are only read: the list of
# source repositories is made from the binary ones that it already trusts, and lives in FOLDER/apt.
set -eu

folder=$1
[ -d "$folder/libzstd" ] && [ -d "$folder/jansson" ] && [ -d "$folder/pcre2" ] && [ -d "$folder/utf8proc" ] && exit 0
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder"

# The Debian archive has sources for all that it has binaries for; other repositories may not.
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    sort -u >apt/sources.list
if ! [ -s apt/sources.list ]; then
    echo "wasm/sources.sh: apt knows no Debian repository here: run apt-get update, or put the sources of libzstd, jansson," \
         "pcre2 and utf8proc into $PWD/libzstd and so on" >&2
    exit 1
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -r $keyring ]; then sed -i "s|^deb-src |deb-src [signed-by=$keyring] |" apt/sources.list; fi

cat >apt/apt.conf <<END
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt/cache";
APT::Sandbox::User "$(id -un)";
END
export APT_CONFIG="$PWD/apt/apt.conf"

echo "fetching sources of libzstd, jansson, pcre2, utf8proc"
apt-get -qq update

# The newest version first; a mirror that lacks its files may have an older one.
fetch()
{
    for version in $(apt-cache showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -rVu); do
        rm -rf "unpack.$1"
        mkdir "unpack.$1"
        if (cd "unpack.$1" && apt-get -qq source "$1=$version" >log 2>&1); then
            rm -rf "$1"
            mv "unpack.$1"/*/ "$1"
            rm -rf "unpack.$1"
            echo "$1 $version"
            return
        fi
        mv "unpack.$1/log" "apt/$1.log"
        rm -rf "unpack.$1"
    done
    cat "apt/$1.log" >&2
    echo "wasm/sources.sh: no source of $1 could be fetched" >&2
    exit 1
}

for package in libzstd jansson pcre2 utf8proc; do
    [ -d $package ] || fetch $package
done
rm -rf apt

#!/bin/sh
# Fetch the sources of the libraries that the wasm and the web build compile themselves, from the distribution's own source packages:
#     wasm/sources.sh FOLDER PACKAGE…
# leaves FOLDER/PACKAGE for each. The machine's apt configuration and state are only read: the list of source repositories is made from
# the binary ones that it already trusts, and lives in FOLDER/apt.
set -eu

folder=$1
shift
lacking=
for package; do [ -d "$folder/$package" ] || lacking="$lacking $package"; done
[ -n "$lacking" ] || exit 0
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder"

# The Debian archive has sources for all that it has binaries for; other repositories may not.
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    sort -u >apt/sources.list
if ! [ -s apt/sources.list ]; then
    echo "wasm/sources.sh: apt knows no Debian repository here: run apt-get update, or put the sources of$lacking into" \
         "folders of these names in $PWD" >&2
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

echo "fetching sources of$lacking"
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

for package in $lacking; do fetch $package; done
rm -rf apt

# Makes, once, the key with which dispatch logs in to the simulated sites, and its ssh configuration, in /keys; and in /public what
# the sites know of it.
set -eu
umask 077
cd /keys
[ -s id_ed25519.pub ] || {
    rm -f id_ed25519 new new.pub
    ssh-keygen -q -t ed25519 -N '' -C simulation -f new
    mv new id_ed25519
    mv new.pub id_ed25519.pub
}
install -m 444 id_ed25519.pub /public/
cat >config <<'CONFIG'
Host alpha beta
  Port 2222
  User atoll
  IdentityFile ~/.ssh/id_ed25519
  IdentitiesOnly yes
CONFIG

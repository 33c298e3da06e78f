# A site of the simulation: LANGUAGE's texts in the work directory /srv/site/work, and sshd as an ordinary user.
set -eu
umask 077
cd /srv/site
mkdir -p work
[ -s work/texts.jsonl ] || {
    bash /opt/atoll/simulation/make_texts.sh "$LANGUAGE" 1500 >work/new
    mv work/new work/texts.jsonl
}
[ -s host_key ] || {
    rm -f new new.pub
    ssh-keygen -q -t ed25519 -N '' -f new
    mv new host_key
}
# A login sees the programs where a site would have them in PATH.
exec /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h /srv/site/host_key -o AuthorizedKeysFile=/public/id_ed25519.pub -o UsePAM=no \
    -o StrictModes=no -o PasswordAuthentication=no -o PidFile=none -o MaxStartups=100 -o "SetEnv=PATH=$PATH"

# start.sh PROGRAM OPTION…: Prometheus or Alertmanager, for the user atoll with the stack's password alone.
set -eu
umask 077
# A password of 192 random bits is as safe behind the cheapest bcrypt, which each request costs.
perl -e '
    open(my $secret, "<", "/run/secrets/observe_password") or die "observe_password: $!\n";
    chomp(my $password = <$secret>);
    open(my $random, "<", "/dev/urandom") or die "/dev/urandom: $!\n";
    read($random, my $salt, 21) == 21 or die "/dev/urandom: $!\n";
    $salt =~ s/(.)/("A".."Z", "a".."z", 0..9, ".", "\/")[ord($1) % 64]/ges;
    my $hash = crypt($password, "\$2b\$04\$$salt.");
    $hash =~ /^\$2b\$/ or die "this system has no bcrypt\n";
    print "basic_auth_users:\n  atoll: $hash\n";
' >/tmp/web.yml
exec "$@" --web.config.file=/tmp/web.yml

# ready.sh PORT: whether Prometheus or Alertmanager, which listens there, says that it is ready.
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /-/ready HTTP/1.0\r\nAuthorization: Basic %s\r\n\r\n' "$(printf 'atoll:%s' "$(cat /run/secrets/observe_password)" | base64 -w 0)" >&3
head -1 <&3 | grep -q 200

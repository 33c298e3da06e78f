# Alerts by e-mail: a check of compose.sh. Alertmanager talks to a mail server of the test's, on this machine.

# mail_server PORT FILE [CERTIFICATE KEY PASSWORD]: keeps what is sent to it. With a certificate it wants STARTTLS first and then
# the user atoll and that password, as public mail servers do; without, it asks for nothing, as a centre's own relay. To be started in
# the background.
mail_server() {
    exec python3 - "$@" <<'PYTHON'
import base64, socketserver, ssl, sys
port, file, certificate = int(sys.argv[1]), sys.argv[2], sys.argv[3:4]
if certificate:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
    login = b"\0atoll\0" + sys.argv[5].encode()

class Mail(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text.encode() + b"\r\n")
        self.wfile.flush()

    def handle(self):
        encrypted = allowed = not certificate
        self.say("220 test ESMTP")
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            verb = verb.upper()
            if verb in ("EHLO", "HELO"):
                self.say("250 test" if not certificate else "250-test\r\n250 " + ("AUTH PLAIN" if encrypted else "STARTTLS"))
            elif verb == "STARTTLS":
                self.say("220 go on")
                self.connection = tls.wrap_socket(self.connection, server_side=True)
                self.setup_again()
                encrypted = True
            elif verb == "AUTH":
                allowed = encrypted and base64.b64decode(rest.split()[1]) == login
                self.say("235 welcome" if allowed else "535 wrong password")
            elif not (encrypted and allowed):
                self.say("530 log in first")
            elif verb == "DATA":
                self.say("354 go on")
                mail = []
                while (part := self.rfile.readline()).rstrip() != b".":
                    mail.append(part)
                with open(file, "ab") as kept:
                    kept.writelines(mail)
                self.say("250 taken")
            else:
                self.say("250 ok")
            if verb == "QUIT":
                return

    def setup_again(self):
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")

socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("0.0.0.0", port), Mail).serve_forever()
PYTHON
}

# Alertmanager's own words of an alert that is firing, by which it is told from Prometheus' alerts.
fire_alert() {
    observer $((port + 3)) /api/v2/alerts -f -H 'Content-Type: application/json' \
        -d "[{\"labels\": {\"alertname\": \"$1\"}}]"
}
mail_names() { grep -F "$2" "$1" 2>/dev/null | says '^Subject:.*FIRING'; }

# init_mail OPTION…: alerts go by mail, and Alertmanager has read it.
init_mail() {
    compose/init --no-images --alerts-to ops@example.org --smtp "$network.129:$((port + 5))" "$@" >/dev/null
    up
    docker compose restart alertmanager >/dev/null 2>&1
    up
}

# Expects the profile observe, with Alertmanager's port at $port + 3.
check_mail_is_sent() (
    local server='' started
    trap '[ -z "$server" ] || kill "$server"; sed -i "/^COMPOSE_FILE=/s/:compose\/authority.yaml//" .env' EXIT
    mkdir -p "$work/mail"
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=mail -addext "subjectAltName=IP:$network.129" -days 2 \
        -keyout "$work/mail/key.pem" -out "$work/mail/cert.pem" >/dev/null 2>&1
    printf "it's a secret" >"$work/smtp"
    # The authority that the container trusts is the test's.
    printf 'services:\n  alertmanager:\n    environment: {SSL_CERT_FILE: /authority.pem}\n    volumes: ["%s:/authority.pem:ro"]\n' \
        "$work/mail/cert.pem" >compose/authority.yaml
    chmod 755 "$work/mail"
    chmod 644 "$work/mail/cert.pem"
    sed -i '/^COMPOSE_FILE=/s/$/:compose\/authority.yaml/' .env
    mail_server $((port + 5)) "$work/mail/kept" "$work/mail/cert.pem" "$work/mail/key.pem" "$(cat "$work/smtp")" &
    server=$!
    init_mail --smtp-user atoll --smtp-password-file "$work/smtp"
    started=$SECONDS
    fire_alert WithPassword
    within 120 mail_names "$work/mail/kept" WithPassword || { docker compose logs --tail 5 alertmanager >&2; fail "no mail came"; }
    printf '  mail came after %d s\n' $((SECONDS - started)) >&2
    kill "$server"
    mail_server $((port + 5)) "$work/mail/plain" &
    server=$!
    init_mail --smtp-without-tls
    fire_alert ByTheRelay
    within 120 mail_names "$work/mail/plain" ByTheRelay || { docker compose logs --tail 5 alertmanager >&2; fail "no mail came by the relay"; }
)

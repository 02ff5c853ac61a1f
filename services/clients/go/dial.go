package turnwright

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Option is how to connect.
type Option func(*settings)

type settings struct {
	token       func(context.Context) (string, error)
	tls         *tls.Config
	isPlaintext bool
	timeout     time.Duration
	more        []grpc.DialOption
	err         error
}

// WithToken sends a token with each call: what `turnwright token create --principal NAME` prints.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource asks for the token before each call, for tokens of an issuer that expire. It is called by several goroutines.
func WithTokenSource(token func(context.Context) (string, error)) Option {
	return func(s *settings) { s.token = token }
}

// WithTLS uses TLS, which another host requires. See [TLSFiles].
func WithTLS(config *tls.Config) Option { return func(s *settings) { s.tls = config } }

// WithTLSFromEnvironment is [WithTLS] by the files that TURNWRIGHT_TLS_CA, TURNWRIGHT_TLS_CERT and TURNWRIGHT_TLS_KEY name, as for the
// other programs of Turnwright; nothing if the first is not set.
func WithTLSFromEnvironment() Option {
	return func(s *settings) {
		if authorities := os.Getenv("TURNWRIGHT_TLS_CA"); authorities != "" {
			s.tls, s.err = TLSFiles(authorities, os.Getenv("TURNWRIGHT_TLS_CERT"), os.Getenv("TURNWRIGHT_TLS_KEY"))
		}
	}
}

// WithPlaintext speaks plaintext also to other hosts, which can be read by whoever is on the way. Only where a mesh or a private
// network protects the connection.
func WithPlaintext() Option { return func(s *settings) { s.isPlaintext = true } }

// WithTimeout is the deadline of calls whose context has none; 30 seconds without it. Watches have none, and neither have CallTool and
// GetStatus with CheckModels, which last as long as what they ask for.
func WithTimeout(timeout time.Duration) Option { return func(s *settings) { s.timeout = timeout } }

// WithDialOptions adds options of gRPC: interceptors, stats handlers, a dialer.
func WithDialOptions(more ...grpc.DialOption) Option {
	return func(s *settings) { s.more = append(s.more, more...) }
}

// TLSFiles is TLS with the authorities in a file (PEM; empty: those of the system), and with a certificate of the client's own if its
// file and that of its key are not empty.
func TLSFiles(authorities, certificate, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		text, err := os.ReadFile(authorities)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", authorities)
		}
	}
	if certificate != "" {
		// Read at each handshake: it may have been renewed.
		read := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certificate, key)
			return &pair, err
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return config, nil
}

// Dial makes a client of the executor at an address, such as 127.0.0.1:7440. Nothing is sent before the first call. A name that has an
// address for each of several executors is written dns:///NAME:PORT; calls take turns then. To an executor on another host it needs
// [WithTLS].
func Dial(address string, options ...Option) (*Client, error) {
	chosen := settings{timeout: 30 * time.Second}
	for _, option := range options {
		option(&chosen)
	}
	transport := insecure.NewCredentials()
	switch {
	case chosen.err != nil:
		return nil, chosen.err
	case chosen.tls != nil:
		transport = credentials.NewTLS(chosen.tls)
	case !chosen.isPlaintext && !isLocal(address):
		return nil, errors.New("turnwright: others could read the token on the way to " + address + ": use WithTLS, " +
			"or WithPlaintext if a mesh or a private network protects the connection")
	}
	client := &Client{timeout: chosen.timeout}
	dialing := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithChainUnaryInterceptor(client.unary),
		grpc.WithChainStreamInterceptor(client.stream),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// Attempts are as far apart as those of calls.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: pauseFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: pauseLongest},
			MinConnectTimeout: 10 * time.Second,
		}),
	}
	if chosen.token != nil {
		dialing = append(dialing, grpc.WithPerRPCCredentials(bearer{chosen.token, chosen.tls != nil}))
	}
	if strings.HasPrefix(address, "dns:") {
		dialing = append(dialing, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	}
	connection, err := grpc.NewClient(address, append(dialing, chosen.more...)...)
	if err != nil {
		return nil, err
	}
	client.open(connection)
	return client, nil
}

// isLocal is whether only this host is on the other side. A name other than localhost may lead anywhere.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(address[strings.LastIndex(address, "/")+1:])
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// bearer sends the token with each call.
type bearer struct {
	token    func(context.Context) (string, error)
	isSecure bool
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.isSecure }

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/problem"
	"salvor/secret"
)

const defaultURL = "http://127.0.0.1:6385"

// apiEndpoint is the API that the client commands speak to.
type apiEndpoint struct {
	url, user, version string
	// ca, cert and key are files: the authorities of the API's certificate, and what is shown as our own.
	ca, cert, key string
	timeout       time.Duration
}

// flags adds the endpoint's flags to a family of commands.
func (e *apiEndpoint) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&e.url, "url", "", "the API (default $SALVOR_URL, $OS_ENDPOINT or "+defaultURL+")")
	f.StringVar(&e.user, "user", "", "user for basic authentication (default $SALVOR_USER), with the password in $SALVOR_PASSWORD. Without this flag a token in $SALVOR_TOKEN or $OS_TOKEN takes precedence")
	f.StringVar(&e.ca, "cacert", "", "file with the certificate authorities that sign the API's certificate (default $SALVOR_CACERT, $OS_CACERT or the system's)")
	f.StringVar(&e.cert, "cert", "", "file with the client certificate to log in with (default $SALVOR_CERT or $OS_CERT)")
	f.StringVar(&e.key, "cert-key", "", "file with its key (default $SALVOR_CERT_KEY or $OS_KEY, else the file of the certificate)")
	f.StringVar(&e.version, "api-version", "", "microversion to speak, 1.N (default the highest that both sides know)")
	f.DurationVar(&e.timeout, "timeout", time.Minute, "timeout of one request")
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// askAgainFor bounds how long a command repeats a request that a busy server refuses with Retry-After.
const askAgainFor = 2 * time.Minute

func (e *apiEndpoint) client(cmd *cobra.Command) (*client.Client, error) {
	config := client.Config{
		Endpoint:  firstOf(e.url, os.Getenv("SALVOR_URL"), os.Getenv("OS_ENDPOINT"), defaultURL),
		Username:  firstOf(e.user, os.Getenv("SALVOR_USER")),
		Password:  secret.New(os.Getenv("SALVOR_PASSWORD")),
		Timeout:   e.timeout,
		UserAgent: "salvor-cli",
		// A user at a terminal sees why the command waits.
		AskAgainFor: askAgainFor,
		AskingAgain: func(_ client.Request, after time.Duration, why error) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v; asking again in %s\n", why, after)
		},
	}
	var err error
	if config.Transport, err = e.transport(); err != nil {
		return nil, usageErrorf(cmd, "%w", err)
	}
	if e.user == "" {
		config.Token = secret.New(strings.TrimSpace(firstOf(os.Getenv("SALVOR_TOKEN"), os.Getenv("OS_TOKEN"))))
	}
	if e.version != "" {
		v, err := client.ParseVersion(e.version)
		if err != nil {
			return nil, usageErrorf(cmd, "--api-version: %w", err)
		}
		config.Version = v
	}
	c, err := client.New(config)
	if err != nil {
		return nil, usageErrorf(cmd, "%w", err)
	}
	return c, nil
}

// transport speaks TLS by the files that are named, and keeps as many connections as requests go at once: there is one host only.
func (e *apiEndpoint) transport() (http.RoundTripper, error) {
	ca := firstOf(e.ca, os.Getenv("SALVOR_CACERT"), os.Getenv("OS_CACERT"))
	cert := firstOf(e.cert, os.Getenv("SALVOR_CERT"), os.Getenv("OS_CERT"))
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	if ca == "" && cert == "" {
		return t, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return nil, problem.Invalidf("--cacert: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(b) {
			return nil, problem.Invalidf("--cacert: %s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, firstOf(e.key, os.Getenv("SALVOR_CERT_KEY"), os.Getenv("OS_KEY"), cert))
		if err != nil {
			return nil, problem.Invalidf("--cert and --cert-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	t.TLSClientConfig = conf
	return t, nil
}

// clientCall is one run of a client command.
type clientCall struct {
	*cobra.Command
	api  *client.Client
	args []string
}

func (c *clientCall) context() context.Context {
	if ctx := c.Command.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

func (c *clientCall) say(format string, args ...any) {
	fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...)
}

// run makes a command's RunE of a function that speaks to the API.
func (e *apiEndpoint) run(do func(*clientCall) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		api, err := e.client(cmd)
		if err != nil {
			return err
		}
		err = do(&clientCall{cmd, api, args})
		if next := adviseOnError(err, api.Endpoint()); next != "" {
			return withStatus(statusOf(err), fmt.Errorf("%w\n%s", err, next))
		}
		return err
	}
}

// each does something for every node named, all of them even where one fails.
func (c *clientCall) each(do func(ident string) error) error {
	var failed []error
	status := 0
	for _, ident := range c.args {
		if err := do(ident); err != nil {
			failed = append(failed, err)
			status = max(status, statusOf(err))
		}
	}
	return withStatus(status, errors.Join(failed...))
}

// adviseOnError says what to do next about an error of the API.
func adviseOnError(err error, where string) string {
	if err == nil {
		return ""
	}
	switch status := client.StatusOf(err); {
	case status == 0 && problem.Is(err, problem.Unavailable) && !strings.Contains(err.Error(), "gave up waiting"):
		return "no usable answer from " + where + ": is \"salvor serve\" running there? Name another API by --url or SALVOR_URL"
	case status == http.StatusUnauthorized:
		return "set SALVOR_USER and SALVOR_PASSWORD, or SALVOR_TOKEN or OS_TOKEN (\"salvor token create\" makes a token, or where Keystone is asked \"openstack token issue -f value -c id\")"
	case status == http.StatusServiceUnavailable:
		return "asking again later may help: see \"salvor conductor list\""
	}
	return ""
}

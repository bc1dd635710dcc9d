package kit

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

const defaultURL = client.DefaultURL

// Endpoint is the API that the client commands speak to.
type Endpoint struct {
	URL, user, version string
	// cloud is the name of a cloud of clouds.yaml.
	cloud string
	// ca, cert and key are files: the authorities of the API's certificate, and what is shown as our own.
	ca, cert, key string
	Timeout       time.Duration
}

// Flags adds the endpoint's flags to a family of commands.
func (e *Endpoint) Flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&e.URL, "url", "", "the API (default $SALVOR_URL, $OS_ENDPOINT or "+defaultURL+")")
	f.StringVar(&e.cloud, "os-cloud", "", "the cloud of clouds.yaml that names the API and the credentials, as: salvor node list --os-cloud lab (default $OS_CLOUD, unless $SALVOR_URL or $OS_ENDPOINT is set)")
	CompleteFlag(cmd, "os-cloud", cloudNames)
	f.StringVar(&e.user, "user", "", "user for basic authentication (default $SALVOR_USER), with the password in $SALVOR_PASSWORD. Without this flag a token in $SALVOR_TOKEN or $OS_TOKEN takes precedence")
	f.StringVar(&e.ca, "cacert", "", "file with the certificate authorities that sign the API's certificate (default $SALVOR_CACERT, $OS_CACERT or the system's)")
	f.StringVar(&e.cert, "cert", "", "file with the client certificate to log in with (default $SALVOR_CERT or $OS_CERT)")
	f.StringVar(&e.key, "cert-key", "", "file with its key (default $SALVOR_CERT_KEY or $OS_KEY, else the file of the certificate)")
	f.StringVar(&e.version, "api-version", "", "microversion to speak, 1.N (default the highest that both sides know)")
	f.DurationVar(&e.Timeout, "timeout", time.Minute, "timeout of one request")
}

// FirstOf gives the first text that is not empty.
func FirstOf(names ...string) string {
	for _, w := range names {
		if w != "" {
			return w
		}
	}
	return ""
}

// askAgainFor bounds how long a command repeats a request that a busy server refuses with Retry-After.
const askAgainFor = 2 * time.Minute

func (e *Endpoint) client(cmd *cobra.Command) (*client.Client, error) {
	config := client.Config{
		Timeout:   e.Timeout,
		UserAgent: "salvor-cli",
		// A user at a terminal sees why the command waits.
		AskAgainFor: askAgainFor,
		AskingAgain: func(_ client.Request, after time.Duration, why error) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v; asking again in %s\n", Sanitized(why), after)
		},
		Warned: func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", StripControlChars(text)) },
	}
	if e.version != "" {
		v, err := client.ParseVersion(e.version)
		if err != nil {
			return nil, UsageErrorf(cmd, "--api-version: %w", err)
		}
		config.Version = v
	}
	if err := e.configure(cmd, &config); err != nil {
		return nil, err
	}
	c, err := client.New(config)
	if err != nil {
		return nil, UsageErrorf(cmd, "%w", err)
	}
	return c, nil
}

// configure says where the API is and how it lets the user in. What is typed comes before the environment, and in the environment
// SALVOR_URL and OS_ENDPOINT come before OS_CLOUD.
func (e *Endpoint) configure(cmd *cobra.Command, config *client.Config) error {
	config.Endpoint = FirstOf(e.URL, os.Getenv("SALVOR_URL"), os.Getenv("OS_ENDPOINT"))
	cloud := e.cloud
	if cloud == "" && config.Endpoint == "" {
		cloud = os.Getenv("OS_CLOUD")
	}
	var files *cloudFiles
	var one CloudEntry
	var err error
	if cloud != "" {
		if files, one, err = findCloud(cloud); err != nil {
			return UsageErrorf(cmd, "%w", err)
		}
	}
	if config.Transport, err = e.Transport(one); err != nil {
		return UsageErrorf(cmd, "%w", err)
	}
	token := strings.TrimSpace(FirstOf(os.Getenv("SALVOR_TOKEN"), os.Getenv("OS_TOKEN")))
	user := FirstOf(e.user, os.Getenv("SALVOR_USER"))
	// A token from the environment belongs to the API of the environment, not to a cloud that is typed.
	if e.cloud != "" {
		token, user = "", e.user
	}
	if files != nil {
		login, err := files.logIn((&Call{Command: cmd}).Context(), cloud, config.Transport, e.Timeout)
		if err != nil {
			return err
		}
		config.Endpoint = FirstOf(e.URL, login.endpoint)
		if token == "" && user == "" {
			config.Username, config.Password, config.Token = login.username, login.password, login.token
			return nil
		}
	}
	config.Endpoint = FirstOf(config.Endpoint, defaultURL)
	config.Username, config.Password = user, secret.New(os.Getenv("SALVOR_PASSWORD"))
	if e.user == "" {
		config.Token = secret.New(token)
	}
	return nil
}

// Transport speaks TLS by the files that are named, and keeps as many connections as requests go at once: there is one host only.
func (e *Endpoint) Transport(cloud CloudEntry) (http.RoundTripper, error) {
	ca := expandHome(FirstOf(e.ca, os.Getenv("SALVOR_CACERT"), os.Getenv("OS_CACERT"), cloud.CA))
	cert := expandHome(FirstOf(e.cert, os.Getenv("SALVOR_CERT"), os.Getenv("OS_CERT"), cloud.Cert))
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	unverified := cloud.Verify != nil && !*cloud.Verify
	if ca == "" && cert == "" && !unverified {
		return t, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: unverified}
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
		pair, err := tls.LoadX509KeyPair(cert, expandHome(FirstOf(e.key, os.Getenv("SALVOR_CERT_KEY"), os.Getenv("OS_KEY"), cloud.Key, cert)))
		if err != nil {
			return nil, problem.Invalidf("--cert and --cert-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	t.TLSClientConfig = conf
	return t, nil
}

// Call is one run of a client command.
type Call struct {
	*cobra.Command
	API  *client.Client
	Args []string
	// Labels are the names of nodes that were chosen by their fields, by UUID; nil: the arguments were typed.
	Labels map[string]string
}

// Context is that of the command, or the background where the command was not started with a context.
func (c *Call) Context() context.Context {
	if ctx := c.Command.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// Say writes a line for people to standard error.
func (c *Call) Say(format string, args ...any) {
	fmt.Fprintln(c.ErrOrStderr(), PrintableLines(fmt.Sprintf(format, args...)))
}

// Run makes a command's RunE of a function that speaks to the API.
func (e *Endpoint) Run(do func(*Call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		api, err := e.client(cmd)
		if err != nil {
			return err
		}
		err = do(&Call{Command: cmd, API: api, Args: args})
		if cmd.Context() != nil && cmd.Context().Err() != nil { // interrupted: no advice about the API helps
			return err
		}
		if next := adviseOnError(err, api.Endpoint()); next != "" {
			return WithStatus(StatusOf(err), fmt.Errorf("%w\n%s", err, next))
		}
		return err
	}
}

// Label is how an argument is shown: the name of a node that was chosen, or the word that was typed.
func (c *Call) Label(ident string) string {
	return FirstOf(c.Labels[ident], StripControlChars(ident))
}

// Each does something for every node named, all of them even where one fails.
func (c *Call) Each(do func(ident string) error) error {
	var failed []error
	status := 0
	for _, ident := range c.Args {
		if err := do(ident); err != nil {
			failed = append(failed, err)
			status = max(status, StatusOf(err))
		}
	}
	return WithStatus(status, errors.Join(failed...))
}

// JoinErrors joins two errors; the exit status is the higher one.
func JoinErrors(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return WithStatus(max(StatusOf(a), StatusOf(b)), errors.Join(a, b))
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

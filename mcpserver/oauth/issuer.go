package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/kitbag-go/kitbag/internal/loopback"
	"github.com/kitbag-go/kitbag/internal/oauthurl"
)

const (
	fetchTimeout = 5 * time.Second
	fetchEvery   = 10 * time.Second // the shortest interval of requests for unknown keys, and to an issuer that could not be reached
	refreshKeys  = time.Hour
	maxBody      = 1 << 20
	maxRedirects = 5
)

// An issuer is an authorization server.
type issuer struct {
	url    string
	ctx    context.Context // of the requests for keys
	client *http.Client

	mu    sync.Mutex      // held while the keys are first requested
	keys  keyfunc.Keyfunc // nil before that request has succeeded
	tried time.Time       // when the keys were last requested without success
}

// keyfunc returns the function that finds the key of a token.
func (i *issuer) keyfunc(ctx context.Context) (jwt.Keyfunc, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys == nil {
		if time.Since(i.tried) < fetchEvery {
			return nil, errors.New("the last attempt has just failed")
		}
		keys, err := i.discover()
		if err != nil {
			i.tried = time.Now()
			slog.WarnContext(ctx, "the keys of an authorization server cannot be read; its tokens are refused", "issuer", i.url, "err", err)
			return nil, err
		}
		i.keys = keys
	}
	// Not ctx: if the client left, the request for an unknown key would be cancelled, and the next one waits for fetchEvery.
	find := i.keys.KeyfuncCtx(i.ctx)
	return func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical { // RFC 7515: it must be refused, since no extension is known
			return nil, errors.New("the header of the token has critical extensions")
		}
		if kid, _ := t.Header["kid"].(string); kid == "" { // otherwise every key would be tried
			return nil, errors.New("the header of the token names no key")
		}
		return find(t)
	}, nil
}

// discover finds the keys by the issuer's metadata.
func (i *issuer) discover() (keyfunc.Keyfunc, error) {
	urls, err := oauthurl.Metadata(i.url)
	if err != nil {
		return nil, err
	}
	var meta metadata
	for _, u := range urls { // some servers answer an unknown path with a page
		if meta, err = i.get(u); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return nil, err
	case meta.Issuer != i.url:
		return nil, fmt.Errorf("the metadata has the issuer %q, not %q", meta.Issuer, i.url)
	case oauthurl.Secure(meta.Keys) != nil || isLoopback(meta.Keys) && !isLoopback(i.url):
		return nil, fmt.Errorf("the metadata has the jwks_uri %q; it must be https, and not on this machine unless the issuer is", meta.Keys)
	}
	ignoreFirstError := false
	keys, err := keyfunc.NewDefaultOverrideCtx(i.ctx, []string{meta.Keys}, keyfunc.Override{
		Client: i.client, HTTPTimeout: fetchTimeout, NoErrorReturnFirstHTTPReq: &ignoreFirstError, RefreshInterval: refreshKeys,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(fetchEvery), 1), RateLimitWaitMax: fetchTimeout,
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(ctx context.Context, err error) {
				slog.WarnContext(ctx, "the keys of an authorization server cannot be read; those known are used", "issuer", i.url, "err", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return keyfunc.New(keyfunc.Options{Ctx: i.ctx, Storage: keys.Storage(), UseWhitelist: []jwkset.USE{jwkset.UseSig, ""}})
}

// metadata is what is needed of an issuer's metadata.
type metadata struct {
	Issuer string `json:"issuer"`
	Keys   string `json:"jwks_uri"`
}

// get reads the metadata at a URL.
func (i *issuer) get(u string) (m metadata, err error) {
	ctx, cancel := context.WithTimeout(i.ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return m, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := i.client.Do(req)
	if err != nil {
		return m, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return m, fmt.Errorf("%s has the status %d", u, res.StatusCode)
	}
	err = json.NewDecoder(res.Body).Decode(&m)
	return m, err
}

func isLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && loopback.Host(u.Hostname())
}

// boundedClient returns a client that reads only short answers and follows redirects only on the same host.
func boundedClient(c *http.Client) *http.Client {
	client := &http.Client{Timeout: fetchTimeout}
	if c != nil {
		*client = *c
	}
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = bounded{next}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return client
}

type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxBody)
	}
	return res, err
}

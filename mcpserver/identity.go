package mcpserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// An Authenticator decides who sends a request over HTTP. Package mcpserver/oauth has one for OAuth access tokens.
//
// If it also has a method Wrap(http.Handler) http.Handler, [Server.Handler] returns what Wrap returns, so that it can
// serve metadata without authentication.
type Authenticator interface {
	// Authenticate returns the identity of the caller. It is called for every request, must be safe for concurrent use
	// and must not read the body. A [*Refusal] says how to answer a request that is refused; for any other error the
	// answer has status 401 and does not contain the error.
	Authenticate(*http.Request) (Identity, error)
}

// An Identity is a caller over HTTP, and what it may see and do. Everything that a server keeps for a client belongs to
// the pair of Name and Grant: sessions, streams, subscriptions, calls that wait for an answer, and the state of tools.
type Identity struct {
	// Name is unique and stable, such as issuer and subject; for audit records. An identity without a name is refused, and
	// so is one with the name of a [Credential].
	Name string

	// Grant names the values of the fields below: identities with the same Name and Grant must have the same Ceiling,
	// Policy, Sessions and Calls.
	Grant   string
	Ceiling toolkit.Ceiling    // limits what the identity's clients may see; the zero Ceiling is no limit
	Policy  *permission.Policy // unless nil, replaces Config.Policy

	// Sessions is how many sessions the identity may have, and Calls how many requests in flight; 0 means the server's
	// limit, and a larger number has no effect.
	Sessions, Calls int

	// Expires is when requests with this identity are cancelled, with their streams and calls; the zero Time is never.
	Expires time.Time

	// Token, unless nil, returns the token of this request, which may be exchanged for another one and is never sent to
	// an upstream server. It is a function, so that printing an Identity does not print the token.
	Token func() string
}

// key identifies what belongs to the identity. It differs from the keys of all credentials.
func (id *Identity) key() string { return "identity " + strconv.Quote(id.Name) + " " + id.Grant }

// key identifies what belongs to the credential.
func (c *Credential) key() string { return "credential " + c.Name }

// A Refusal is the error of an [Authenticator] that refuses a request. The client is sent all of it.
type Refusal struct {
	Status    int    // 401, 403 or 503
	Challenge string // the header WWW-Authenticate; none if it is empty
	Reason    string
}

func (r *Refusal) Error() string { return r.Reason }

// tokens is the Authenticator of Config.Credentials.
type tokens []Credential

var errUnknownToken = &Refusal{http.StatusUnauthorized, "Bearer", "missing or unknown token; send Authorization: Bearer TOKEN"}

// Authenticate implements [Authenticator]. The comparison takes constant time, so that it does not reveal how many bytes
// of a token are right.
func (t tokens) Authenticate(r *http.Request) (Identity, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sent := sha256.Sum256([]byte(strings.TrimSpace(token)))
	var found *Credential
	for i := range t {
		if want := t[i].digest(); subtle.ConstantTimeCompare(sent[:], want[:]) == 1 {
			found = &t[i]
		}
	}
	if found == nil || !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, errUnknownToken
	}
	return found.identity(), nil
}

func (c *Credential) identity() Identity {
	return Identity{Name: c.Name, Ceiling: c.Ceiling, Policy: c.Policy}
}

// digest returns the SHA-256 of the credential's token.
func (c *Credential) digest() (sum [sha256.Size]byte) {
	if c.Hash == "" {
		return sha256.Sum256([]byte(c.Token))
	}
	_, _ = hex.Decode(sum[:], []byte(strings.TrimPrefix(c.Hash, hashPrefix))) // checkToken has decoded it
	return sum
}

const hashPrefix = "sha256:"

// HashToken returns the Hash of a [Credential] for a token. The token must be random: a hash of a word that people
// choose can be guessed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// ValidHash reports whether a string has the form of a hash that HashToken returns.
func ValidHash(hash string) bool {
	raw, err := hex.DecodeString(strings.TrimPrefix(hash, hashPrefix))
	return err == nil && len(raw) == sha256.Size && strings.HasPrefix(hash, hashPrefix)
}

// checkToken checks that the credential has either a token or a hash.
func (c *Credential) checkToken() error {
	switch {
	case c.Hash != "" && c.Token != "":
		return fmt.Errorf("credential %q has a token and a hash; give only one of them", c.Name)
	case c.Hash != "" && !ValidHash(c.Hash):
		return fmt.Errorf("the hash of credential %q is not %q and %d hexadecimal digits; make one with HashToken or kitbag mcp key", c.Name, hashPrefix, 2*sha256.Size)
	case c.Hash == "" && len(c.Token) < MinToken:
		return fmt.Errorf("the token of credential %q is shorter than %d bytes; generate a random one", c.Name, MinToken)
	}
	return nil
}

// authenticate returns the account of a request, and the request with the identity in its context. It returns the refusal
// of the last Authenticator if none accepts the request.
func (s *Server) authenticate(r *http.Request) (*account, *http.Request, *Refusal) {
	if len(s.cat.auth) == 0 {
		return s.reg.anonymous, r, nil
	}
	var err error
	for _, a := range s.cat.auth {
		var id Identity
		if id, err = a.Authenticate(r); err != nil {
			continue
		}
		var who *account
		if who, err = s.reg.enter(id, a); err != nil {
			break
		}
		return who, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)), nil
	}
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal == nil || !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable}, refusal.Status) {
		return nil, r, errUnknownToken // also for a refusal that an Authenticator must not return, such as one with status 200
	}
	return nil, r, refusal
}

type identityKey struct{}

// IdentityFrom returns the identity that called a tool over HTTP, as it was when the call began. ok is false over stdio,
// and if the server has neither Credentials nor an Authenticator.
func IdentityFrom(ctx context.Context) (id Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// errExpired is the error of a request whose identity has expired while it was handled, and the cause of its context.
var errExpired = rpc.Errorf(mcp.INVALID_REQUEST, "the access token has expired during the request; the request may have had effects, so repeat it with a new token only if it may run twice")

// untilExpiry returns a context that ends when the identity of ctx expires.
func untilExpiry(ctx context.Context) (context.Context, context.CancelFunc) {
	if id, _ := IdentityFrom(ctx); !id.Expires.IsZero() {
		return context.WithDeadlineCause(ctx, id.Expires, errExpired)
	}
	return context.WithCancel(ctx)
}

// An account is an identity that the server has seen, and what its clients share.
type account struct {
	Identity
	key       string // what replicas compare; see Identity.key and Credential.key
	budgets   *budgets
	buckets   []*replica.Rate // of Config.Rates
	shared    *client         // all clients of the account without sessions; nil before the first request
	permanent bool            // never dropped: a credential of the configuration, or registry.anonymous

	// Guarded by registry.mu.
	requests int       // that are being received or handled; see registry.enter
	lastUsed time.Time // when requests last changed
}

// minKept is how long an unused account is kept when there are too many accounts.
const minKept = 10 * time.Second

// enter returns the account of an identity, which the Authenticator from has returned, and counts a request until leave is
// called. There are at most Limits.Sessions accounts: an account without sessions, requests and tasks is dropped after a
// while, or earlier if there are too many.
func (g *registry) enter(id Identity, from Authenticator) (*account, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	credential := (&Credential{Name: id.Name}).key()
	if _, ok := from.(tokens); ok {
		return g.accounts[credential], nil
	}
	if g.accounts[credential] != nil || id.Name == "" || !id.Expires.IsZero() && !id.Expires.After(now) {
		slog.Error("an identity is refused: it has expired, or its name is empty or the name of a credential", "name", id.Name, "expires", id.Expires)
		return nil, errUnknownToken
	}
	key := id.key()
	a := g.accounts[key]
	if a == nil {
		limits := &g.cat.limits
		keepUnused := limits.Idle + limits.Ask // a client may return with an answer, and needs the state of its tools
		if len(g.accounts) >= limits.Sessions {
			keepUnused = min(minKept, limits.Idle)
		}
		maps.DeleteFunc(g.accounts, func(_ string, o *account) bool {
			drop := !o.permanent && o.unused() && now.Sub(o.lastUsed) > keepUnused
			if drop && o.shared != nil {
				o.shared.cancel()
			}
			return drop
		})
		if len(g.accounts) >= limits.Sessions {
			return nil, &Refusal{Status: http.StatusServiceUnavailable, Reason: "too many users; try again later"}
		}
		a = g.newAccount(id, key, g.cat.cfg.identities())
		a.budgets.lower(id.Sessions, id.Calls)
		a.Token = nil // the token is only for this request
		if g.divide != nil {
			g.divide(a)
		}
		g.accounts[key] = a
	}
	a.requests, a.lastUsed = a.requests+1, now
	return a, nil
}

// leave ends a request of an account; a is nil for a request that was refused.
func (g *registry) leave(a *account) {
	if a == nil || a.permanent {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a.requests, a.lastUsed = a.requests-1, time.Now()
}

// unused reports whether nothing belongs to the account. The caller holds registry.mu.
func (a *account) unused() bool {
	return a.requests == 0 && a.budgets.sessions.Used() == 0 && a.budgets.calls.Used() == 0 && (a.shared == nil || !a.shared.parked.Used())
}

// lower lowers the limits of sessions and requests in flight; 0 keeps a limit.
func (b *budgets) lower(sessions, calls int) {
	for budget, limit := range map[*wire.Budget]int{&b.sessions: sessions, &b.calls: calls} {
		if limit > 0 {
			budget.Max.Store(min(budget.Max.Load(), int64(limit)))
		}
	}
}

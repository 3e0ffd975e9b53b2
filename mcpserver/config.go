package mcpserver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config configures a [Server]. Toolkit, Name and Version are required.
type Config struct {
	Toolkit       *toolkit.Toolkit
	Name, Version string
	Title         string // for people; may be empty

	// Instructions are for the host's model, and precede the instructions of the toolkit's basic group. MaxInstructions
	// is the limit for all instructions together, in bytes; 0 is 16 KiB. Longer text is cut off.
	Instructions    string
	MaxInstructions int

	// Policy decides about calls. nil is the zero policy, which asks the host about every call except calls of
	// control tools. The policy must not be changed after New. New returns an error if a rule names a tool that does not
	// exist and the name is similar to that of an existing tool, or if a tool cannot read the pattern of a rule.
	Policy *permission.Policy

	// Prompts and Resources are served in addition to the skills of the toolkit.
	Prompts   []Prompt
	Resources []Resource

	// TaskAfter, unless 0, is the time after which a call becomes a task, for clients of revision 2026-07-28 or later
	// that support tasks. A [tool.Backgrounder] sets its own time. See Tasks in the package's documentation.
	TaskAfter time.Duration

	// Middleware wraps every call; the first is the outermost.
	Middleware []tool.Middleware

	// MaxListBytes is for clients from protocol revision 2026-07-28 on, whose list of tools must not change. If the
	// definitions of all tools that such a client may see have at most this many bytes, its list contains them all,
	// labelled with their groups; otherwise it contains the tools of [toolkit.Discover]. To find out, the server
	// contacts all sources. 0 is 16 KiB for a toolkit without sources. For a toolkit with sources 0 means the same
	// as a negative number: the list never contains all tools.
	MaxListBytes int

	// PageSize is the largest number of entries in a page of a list; 0 is no limit for tools and groups, and 1000 for others.
	PageSize int

	// Credentials are the credentials of HTTP clients, and Authenticator decides about requests without one of them. If
	// there are none and Authenticator is nil, every client on this machine is served.
	Credentials   []Credential
	Authenticator Authenticator

	// Hosts are names of the HTTP server, without port, in addition to localhost and loopback addresses. A browser may
	// send requests from Origins, such as "https://app.example.com", in addition to origins on these hosts.
	Hosts, Origins []string

	Limits Limits
	Rates  []Rate // a call must be within each Rate that applies to its tool

	// Replicas, unless nil, makes this server one of several that serve as one over HTTP.
	Replicas *Replicas

	// Audit, unless nil, is called after every call, before the answer is sent. It must be safe for concurrent use.
	Audit func(Record)

	// Listed, unless nil, is called when a client gets the first page of tools, with the bytes of the definitions in all
	// pages. It must be safe for concurrent use.
	Listed func(bytes int)

	upstream mcpupstream.Provider // set by [mcpupstream.Attach]; nil for none
}

// A Credential is a token that clients over HTTP must send, and what these clients may see and do.
type Credential struct {
	Name  string // unique; for audit records
	Token string // "Authorization: Bearer TOKEN"; 16 bytes or more
	Hash  string // in place of Token: what [HashToken] returned for it

	// Ceiling limits what the clients of the credential may see; the zero Ceiling is no limit.
	Ceiling toolkit.Ceiling

	// Policy, unless nil, replaces Config.Policy.
	Policy *permission.Policy
}

// Limits limit what one client, or all clients together, may use. Fields that are zero have the defaults.
type Limits struct {
	Request  int           // bytes of a message; 4 MiB by default
	Sessions int           // open sessions over HTTP; 4096 by default
	Share    int           // sessions of one credential; by default a quarter of Sessions, or all of them if there is only one credential
	Calls    int           // requests in flight in a session; 64 by default. All clients of a credential, or without one, can have 16 times as many together
	Idle     time.Duration // how long a session without streams and requests is kept; 30 min by default
	Write    time.Duration // how long a client may leave a message unread over HTTP; 30 s by default
	Resume   time.Duration // how long a call continues without a connection, and an answer is kept; 1 min by default
	Ask      time.Duration // how long a client may take to answer a question; 10 min by default
	Task     time.Duration // how long a task may take, and its result is kept; 1 h by default
}

// identities returns the number of identities.
func (c *Config) identities() int {
	if c.Authenticator != nil {
		return 2 // the number is not known; callers only distinguish one identity from several
	}
	return len(c.Credentials)
}

func (l Limits) withDefaults(identities int) Limits {
	l.Request = cmp.Or(l.Request, 4<<20)
	l.Sessions = cmp.Or(l.Sessions, 4096)
	if identities > 1 {
		l.Share = cmp.Or(l.Share, max(1, l.Sessions/4))
	}
	l.Share = cmp.Or(l.Share, l.Sessions)
	l.Calls = cmp.Or(l.Calls, 64)
	l.Idle = cmp.Or(l.Idle, 30*time.Minute)
	l.Write = cmp.Or(l.Write, 30*time.Second)
	l.Resume = cmp.Or(l.Resume, time.Minute)
	l.Ask = cmp.Or(l.Ask, 10*time.Minute)
	l.Task = cmp.Or(l.Task, time.Hour)
	return l
}

// MinToken is the smallest length of the token of a [Credential], in bytes.
const MinToken = 16

func (c *Config) check() error {
	switch {
	case c.Toolkit == nil:
		return errors.New("Config.Toolkit is nil; set it to the toolkit to serve")
	case strings.TrimSpace(c.Name) == "" || strings.TrimSpace(c.Version) == "":
		return errors.New("Config.Name or Config.Version is empty; both are required")
	case c.TaskAfter < 0:
		return fmt.Errorf("Config.TaskAfter is %v; it must not be negative (0: no tasks)", c.TaskAfter)
	case c.PageSize < 0:
		return fmt.Errorf("Config.PageSize is %d; it must not be negative (0: no pages)", c.PageSize)
	}
	if c.Replicas != nil {
		if err := c.Replicas.check(); err != nil {
			return err
		}
	}
	for i, r := range c.Rates {
		if err := r.Check(); err != nil {
			return fmt.Errorf("Config.Rates[%d]: %w", i, err)
		}
	}
	for i, cred := range c.Credentials {
		switch {
		case cred.Name == "":
			return fmt.Errorf("credential %d has no name; give it one for audit records", i)
		case slices.ContainsFunc(c.Credentials[:i], func(o Credential) bool { return o.Name == cred.Name || o.digest() == cred.digest() }):
			return fmt.Errorf("credential %q has the same name or token as another credential", cred.Name)
		}
		if err := cred.checkToken(); err != nil {
			return err
		}
	}
	return nil
}

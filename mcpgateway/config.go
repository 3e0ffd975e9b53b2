package mcpgateway

import (
	"cmp"
	"io"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/oauth"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// A Config configures a [Gateway]: its servers, their groups, and how they are served. Servers and
// Serve.Version are required.
type Config struct {
	// Servers are the servers behind the gateway. The gateway sets their Options.Prefix to the name and two
	// underscores. If Limits.Result is zero it is 16 MiB, because the host shortens the text for its model.
	Servers []mcpclient.Server

	Groups []Group  // in the order for the model; the servers' groups follow
	Labels []string // names of servers whose own groups are used

	// PerSession are names of servers that run in a separate process, or have a separate connection, for each
	// session: servers with state, such as a browser. The process starts with the session's first call and ends
	// with the session or, for clients of protocol 2026-07-28, which have no sessions, with the call. Another
	// process, which is shared, lists the tools.
	PerSession []string

	Initial []string // groups that are open initially; their servers are started with the first session

	Style Style

	// Search adds search_tools to the style's tools, with which the model finds the tools of closed groups.
	// StyleDiscover always has it; StyleFull never, because its list has all tools.
	Search bool

	// CacheDir is a directory for the names of the servers' tools, by which the groups of the next gateway are
	// described before their servers are started. If it is empty, nothing is stored.
	CacheDir string

	// AuditFile is the file to which a line of JSON is appended for every call; see [mcpserver.Record]. If it is
	// empty, there is no file. "-" is standard output, which a gateway that serves standard input and output cannot use.
	// AuditArguments adds the arguments. The file may be moved or truncated while the gateway runs. While it cannot be
	// written, calls are refused.
	AuditFile      string
	AuditArguments bool

	// AuditWriter, unless nil, gets the lines in place of AuditFile, whole lines with each Write. AuditDatabase is the
	// member audit.database of the file: the URL of a database that the caller opens, with mcpserver/postgres, and sets
	// as AuditWriter. New does not use it.
	AuditWriter   io.Writer
	AuditDatabase string

	// OAuth, unless nil, makes the gateway an OAuth resource server: New sets Serve.Authenticator.
	OAuth *oauth.Config

	// UpstreamTokens are the servers that get access tokens from the gateway, in any order.
	UpstreamTokens []UpstreamToken

	Logins *Logins // required for servers with UserLogin

	// ReplicaStore is the member replicas.store of the file: the URL of the database that the caller opens, with
	// mcpserver/postgres, and sets as Serve.Replicas.Shared. New does not use it.
	ReplicaStore string

	Serve ServeOptions
}

// ServeOptions are the settings of the gateway's server; see [mcpserver.Config] for each field. Version is required.
type ServeOptions struct {
	Name            string // "kitbag" by default
	Version         string
	Title           string
	Instructions    string
	MaxInstructions int

	// New returns an error if a rule for tools of a server has a pattern, or if a rule names a server that does not
	// exist and the name is similar to that of an existing server. The tools of the servers are not known then. Its
	// TrustReadOnly counts only for servers with Options.TrustReadOnly: [Load] sets that from the file's permissions.
	Policy        *permission.Policy
	Credentials   []mcpserver.Credential
	Authenticator mcpserver.Authenticator
	Middleware    []tool.Middleware // around every call; the audit file is outside it
	Audit         func(mcpserver.Record)

	// Prompts and Resources are the gateway's own. They are served in addition to those of the servers.
	Prompts   []mcpserver.Prompt
	Resources []mcpserver.Resource

	PageSize, MaxListBytes int
	TaskAfter              time.Duration
	Hosts, Origins         []string
	Limits                 mcpserver.Limits
	Rates                  []mcpserver.Rate
	Replicas               *mcpserver.Replicas
}

// config returns the configuration of the server, without the toolkit.
func (s *ServeOptions) config() mcpserver.Config {
	return mcpserver.Config{
		Name: cmp.Or(s.Name, "kitbag"), Version: s.Version, Title: s.Title,
		Instructions: s.Instructions, MaxInstructions: s.MaxInstructions,
		Policy: s.Policy, Credentials: s.Credentials, Authenticator: s.Authenticator, Middleware: s.Middleware, Audit: s.Audit,
		Prompts: s.Prompts, Resources: s.Resources, PageSize: s.PageSize, MaxListBytes: s.MaxListBytes, TaskAfter: s.TaskAfter,
		Hosts: s.Hosts, Origins: s.Origins, Limits: s.Limits, Rates: s.Rates, Replicas: s.Replicas,
	}
}

// A Group is a set of tools of one or more servers.
type Group struct {
	Name        string // letters, digits, "_", "-" and "."; unique
	Description string // what it is for; the model chooses groups by their descriptions

	// Tools are globs over tool names, SERVER__TOOL, in which "*" matches any text. A group without globs must have
	// the name of a server; it describes that server's group.
	Tools []string

	Instructions string   // for the model when it opens the group; they replace the servers' own
	Parents      []string // groups that must also be open
}

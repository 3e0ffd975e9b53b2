package mcpgateway

import (
	"cmp"
	"io"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// A Config configures a [Gateway]: its servers, their groups, and how they are served. Servers and
// Serve.Version are required.
type Config struct {
	// Servers are the servers behind the gateway. The gateway sets their Options.Prefix to the name and two
	// underscores. A zero Limits.Result means 16 MiB: the host, not the gateway, shortens results for its model.
	Servers []mcpclient.Server

	Groups []Group  // in the order in which the model sees them; the servers' groups follow
	Labels []string // names of servers that group their tools themselves, with the groups extension of MCP

	// PerSession are names of servers that run in a separate process, or have a separate connection, for each
	// session: servers with state, such as a browser. The process starts with the session's first call and ends
	// with the session or, for clients of protocol 2026-07-28, which have no sessions, with the call. One more process,
	// which all sessions share, lists the tools.
	PerSession []string

	Initial []string // groups that are open initially; their servers are started with the first session

	Style Style // empty means StyleReset

	// Search adds search_tools to the style's tools; with search_tools the model finds the tools of closed groups.
	// StyleDiscover always has search_tools; StyleFull never, because its list has all tools.
	Search bool

	// CacheDir is a directory where the gateway stores the names of the servers' tools. The next gateway describes its
	// groups by these names until it starts the servers. If CacheDir is empty, nothing is stored.
	CacheDir string

	// AuditFile is the file to which a line of JSON is appended for every call; see [mcpserver.Record]. Empty means no
	// file. "-" is standard output; do not use it if the gateway serves standard output. AuditArguments adds the arguments
	// of the calls. The file may be moved or truncated while the gateway runs. While it cannot be written, calls are refused.
	AuditFile      string
	AuditArguments bool

	// AuditWriter, unless nil, gets the lines in place of AuditFile, whole lines with each Write. AuditDatabase is the
	// member audit.database of the file that [Load] reads: the URL of a database that the caller opens, with
	// postgres/pggateway, and sets as AuditWriter. New does not use AuditDatabase.
	AuditWriter   io.Writer
	AuditDatabase string

	// OAuth, unless nil, makes the gateway an OAuth resource server: New sets Serve.Authenticator to what OpenOAuth
	// returns, which is then required: it is oauth.New of package mcpserver/oauth, a module of its own. Close closes it.
	OAuth     *mcpserver.OAuth
	OpenOAuth func(mcpserver.OAuth) (mcpserver.ResourceServer, error)

	// UpstreamTokens are for servers that get access tokens from the gateway, in any order.
	UpstreamTokens []UpstreamToken

	Logins *Logins // required for servers with the grant UserLogin

	// ReplicaStore is the member replicas.store of the file that [Load] reads: the URL of the database that the caller
	// opens, with postgres/pggateway, and sets as Serve.Replicas.Shared. New does not use ReplicaStore.
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

	// New returns an error if a rule of Policy for tools of a server has a pattern, or names an unknown server whose name
	// is similar to that of a server. Policy.TrustReadOnly counts only for servers with Options.TrustReadOnly: [Load] sets
	// Options.TrustReadOnly from the file's permissions.
	Policy        *permission.Policy
	Credentials   []mcpserver.Credential
	Authenticator mcpserver.Authenticator
	Middleware    []tool.Middleware // around every call; the audit log also records calls that Middleware refuses
	Audit         func(mcpserver.Record)

	// Prompts and Resources are served in addition to those of the servers.
	Prompts   []mcpserver.Prompt
	Resources []mcpserver.Resource

	PageSize, MaxListBytes int
	TaskAfter              time.Duration
	Hosts, Origins         []string
	Limits                 mcpserver.Limits
	Rates                  []mcpserver.Rate
	Replicas               *mcpserver.Replicas
}

// config returns the configuration of the gateway's server, without the toolkit.
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
	Description string // what the group is for; the model chooses groups by their descriptions

	// Tools are globs over tool names, SERVER__TOOL, in which "*" matches any text. A Group without globs must have
	// the name of a server, and describes the group of that server's tools.
	Tools []string

	Instructions string   // for the model when it opens the group, in place of the servers' instructions
	Parents      []string // names of groups that must also be open
}

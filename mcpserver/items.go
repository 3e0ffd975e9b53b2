package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/message"
)

// A Prompt is a template of messages that a user chooses in the host, often as a command.
type Prompt struct {
	Name        string // unique
	Title       string // for people; if empty, the name is shown
	Description string
	Arguments   []Argument

	// Groups limit who sees the prompt: one of the groups must be open and granted, as for a tool. A prompt without groups
	// is in the toolkit's basic group.
	Groups []string

	// Get returns the messages; their Text and Data blocks are sent. Required arguments are always present. Get can
	// ask the client, as a tool can. An error fails the request, and is sent to the client.
	Get func(ctx context.Context, args map[string]string) ([]*message.Message, error)
}

// An Argument is an argument of a [Prompt], or a variable of a [Resource] template.
type Argument struct {
	Name               string
	Title, Description string // for people; may be empty
	Required           bool   // always true for a variable

	// Complete, unless nil, returns values for what the user has typed, starting with the likeliest; at most 100 values
	// are sent. others are the values of the other arguments.
	Complete func(ctx context.Context, typed string, others map[string]string) ([]string, error)
}

// check reports errors that would otherwise only appear when the prompt is used.
func (p *Prompt) check() error {
	switch {
	case p.Name == "":
		return errors.New("a prompt has no name; set Prompt.Name")
	case p.Get == nil:
		return fmt.Errorf("prompt %q has no Get; set the function that returns its messages", p.Name)
	}
	if err := checkArguments(p.Arguments); err != nil {
		return fmt.Errorf("prompt %q: %w", p.Name, err)
	}
	return nil
}

// checkArguments reports an argument whose name is missing or not unique.
func checkArguments(args []Argument) error {
	for i, a := range args {
		if a.Name == "" || slices.ContainsFunc(args[:i], func(o Argument) bool { return o.Name == a.Name }) {
			return fmt.Errorf("argument %d has the name %q, which is empty or not unique; give each argument a unique name", i, a.Name)
		}
	}
	return nil
}

// describe returns the list entry of a prompt.
func (p *Prompt) describe() object {
	o := titled(object{"name": p.Name, "description": p.Description}, p.Title)
	if len(p.Arguments) > 0 {
		args := make([]object, len(p.Arguments))
		for i, a := range p.Arguments {
			args[i] = titled(object{"name": a.Name, "description": a.Description, "required": a.Required}, a.Title)
		}
		o["arguments"] = args
	}
	return labelled(o, p.Groups)
}

// isVisible reports whether an item of the groups is visible to a client that can use the reachable groups.
func isVisible(reachable, groups []string) bool {
	if len(groups) == 0 {
		return slices.Contains(reachable, "") // the basic group
	}
	return slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(reachable, g) })
}

// A Resource is content that a client can read.
type Resource struct {
	// URI is absolute and unique, and does not have the scheme "skill", which is for the toolkit's skills. With
	// {variables} it is a template (RFC 6570) for all URIs that match.
	URI string

	Name        string // for people; if empty, the URI is used
	Title       string // for people; may be empty
	Description string

	// MediaType is the media type of the content. If it is empty, text is text/plain, and other content is detected
	// from its bytes.
	MediaType string

	Arguments []Argument // describes variables of a template

	// Groups limit who sees the resource; see [Prompt.Groups].
	Groups []string

	// Read returns the content. vars are the values of a template's variables, which Read must check, because the client
	// chooses them. Read returns an error that wraps [fs.ErrNotExist] if there is no such resource.
	Read func(ctx context.Context, uri string, vars map[string]string) ([]byte, error)
}

// A resource is a Resource with its parsed template.
type resource struct {
	Resource
	template *mcp.URITemplate // nil for a plain URI
}

// newResource checks a resource of the configuration, and parses its template.
func newResource(configured Resource) (*resource, error) {
	r := &resource{Resource: configured}
	scheme, _, absolute := strings.Cut(r.URI, ":")
	switch {
	case !absolute || scheme == "" || scheme == skillScheme:
		return nil, fmt.Errorf("resource %q: its URI must have a scheme other than %q, which is for skills", r.URI, skillScheme)
	case r.Read == nil:
		return nil, fmt.Errorf("resource %q has no Read; set the function that returns its content", r.URI)
	}
	if err := checkArguments(r.Arguments); err != nil {
		return nil, fmt.Errorf("resource %q: %w", r.URI, err)
	}
	if strings.ContainsAny(r.URI, "{}") {
		r.template = new(mcp.URITemplate)
		if err := json.Unmarshal(rpc.Encode(r.URI), r.template); err != nil {
			return nil, fmt.Errorf("resource %q: %w", r.URI, err)
		}
	}
	return r, nil
}

// match reports whether the resource has this URI, and returns the values of the template's variables.
func (r *resource) match(uri string) (map[string]string, bool) {
	if r.template == nil {
		return nil, uri == r.URI
	}
	values := r.template.Match(uri)
	if values == nil {
		return nil, false
	}
	vars := map[string]string{}
	for _, name := range r.template.Varnames() {
		vars[name] = values.Get(name).String()
	}
	return vars, true
}

// describe returns the list entry of a resource.
func (r *resource) describe() object {
	key := "uri"
	if r.template != nil {
		key = "uriTemplate"
	}
	o := titled(object{key: r.URI, "name": cmp.Or(r.Name, r.URI), "description": r.Description}, r.Title)
	if r.MediaType != "" {
		o["mimeType"] = r.MediaType
	}
	return labelled(o, r.Groups)
}

// variables returns the names of a template's variables; a plain URI has none.
func (r *resource) variables() []string {
	if r.template == nil {
		return nil
	}
	return r.template.Varnames()
}

package mcpserver

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// serverInfo returns the name, version and title of the server.
func (cat *catalogue) serverInfo() object {
	return titled(object{"name": cat.cfg.Name, "version": cat.cfg.Version}, cat.cfg.Title)
}

// describeServer returns the capabilities and the instructions of the server, for this client.
func (r *request) describeServer(ctx context.Context) object {
	// Declare only lists that exist, because clients request every declared list.
	caps := object{"tools": object{"listChanged": true}, "logging": object{}}
	if r.cat.hasPrompts() {
		caps["prompts"] = object{"listChanged": true}
	}
	if r.cat.hasResources() {
		caps["resources"] = object{"listChanged": true, "subscribe": r.cat.hasSubscriptions()}
	}
	if r.cat.completes {
		caps["completions"] = object{}
	}
	if len(r.tk.Groups(r.scope)) > 0 {
		caps["groups"] = object{"listChanged": true}
	}
	if r.cat.hasSkills() {
		caps["extensions"] = object{skillsExtension: object{}}
	}
	o := object{"capabilities": caps}
	text := r.cat.cfg.Instructions
	if v, err := r.tk.View(ctx, r.scope); err == nil && v.Prompt() != "" { // View fails only after ctx has ended
		text = strings.TrimSpace(text + "\n\n" + v.Prompt())
	}
	if text != "" {
		o["instructions"] = cut(text, r.cat.cfg.MaxInstructions)
	}
	return o
}

// discover handles server/discover.
func (r *request) discover(ctx context.Context) (any, *rpc.Error) {
	o := r.describeServer(ctx)
	o["supportedVersions"] = mcp.ValidProtocolVersions
	return o, nil
}

// listTools handles tools/list.
func (r *request) listTools(ctx context.Context) (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	v, err := r.tk.View(ctx, r.scope)
	if err != nil {
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
	}
	infos, next, err := v.Page(cursor, r.cat.cfg.PageSize)
	if err != nil {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "tools/list: %v", err)
	}
	if cursor == "" && r.cat.cfg.Listed != nil {
		r.cat.cfg.Listed(v.Cost().Total.Bytes)
	}
	list := make([]object, len(infos))
	for i, info := range infos {
		list[i] = describeTool(info, r.granted(r.tk.Labels(info.Name)))
	}
	r.revision.recordView(v, true)
	return page("tools", list, next), nil
}

// describeTool returns the list entry of a tool. The schemas are unchanged, but an output schema that is not for an object
// is left out, because clients would reject the whole list.
func describeTool(info tool.Info, labels []string) object {
	o := titled(object{"name": info.Name, "description": info.Description, "inputSchema": info.Input}, info.Title)
	var root struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(info.Output, &root) == nil && root.Type == "object" {
		o["outputSchema"] = info.Output
	}
	switch {
	case len(info.Annotations) > 0 && info.Annotations[0] == '{' && json.Valid(info.Annotations):
		o["annotations"] = info.Annotations
	case info.ReadOnly:
		o["annotations"] = object{"readOnlyHint": true}
	}
	return labelled(o, labels)
}

// granted returns labels without the groups that the ceiling does not grant: a client must not learn the names of these
// groups, not even as labels of a tool that the client sees. Labels that are not names of groups stay.
func (r *request) granted(labels []string) []string {
	if len(labels) == 0 {
		return nil
	}
	has := func(groups []toolkit.GroupInfo, name string) bool {
		return slices.ContainsFunc(groups, func(g toolkit.GroupInfo) bool { return g.Name == name })
	}
	all, granted := r.tk.Groups(nil), r.tk.Groups(r.scope)
	if len(all) == len(granted) { // there is no ceiling, or it grants everything
		return labels
	}
	return slices.DeleteFunc(slices.Clone(labels), func(name string) bool { return has(all, name) && !has(granted, name) })
}

// listGroups handles groups/list, of MCP's proposal for primitive grouping. It returns the groups that the
// ceiling grants, whether open or not, with their parents as labels.
func (r *request) listGroups() (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	groups, next, err := r.tk.PageGroups(r.scope, cursor, r.cat.cfg.PageSize)
	if err != nil {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "groups/list: %v", err)
	}
	list := make([]object, len(groups))
	for i, g := range groups {
		o := object{"name": g.Name, "description": g.Description}
		if len(g.Meta) > 0 {
			o["_meta"] = withMembers(object{}, g.Meta)
		}
		list[i] = labelled(titled(o, g.Title), r.granted(g.Parents))
	}
	out := page("groups", list, next)
	if last := r.cat.reloaded.Load(); last != nil {
		out["_meta"] = object{mcp.MetaKeyServerInfo: r.cat.serverInfo(), "kitbag/revision": last.revision}
	}
	return out, nil
}

package inspect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/permission"
)

// A Gateway is what the page shows of a running MCP gateway. Another process sends it as JSON. Its contents come from
// Status, Toolkit and the audit log of a mcpgateway.Gateway.
type Gateway struct {
	Name    string          `json:"name"` // such as its configuration file
	Started time.Time       `json:"started,omitzero"`
	Servers []GatewayServer `json:"servers"`
	Groups  []GatewayGroup  `json:"groups"`
	Calls   []GatewayCall   `json:"calls,omitempty"` // the last calls, in order
}

// A GatewayServer is a server behind a gateway.
type GatewayServer struct {
	Name     string `json:"name"`
	State    string `json:"state"`             // "idle", "ready", "restarting", "failed" or "closed"
	Version  string `json:"version,omitempty"` // the name and version that the server reports
	Protocol string `json:"protocol,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	Error    string `json:"error,omitempty"` // why the server failed or is restarting
}

// A GatewayGroup is a group of tools and what it costs in each request while it is open.
type GatewayGroup struct {
	Name   string   `json:"name"`
	Tools  []string `json:"tools"` // the known tools; those of a server are known once it was started
	Bytes  int      `json:"bytes"`
	Tokens int      `json:"tokens"`
	Failed []string `json:"failed,omitempty"` // servers that could not be listed, with the reason
}

// A GatewayCall is a line of the audit log, with the names of mcpserver.Record.
type GatewayCall struct {
	Time       time.Time           `json:"time"`
	Credential string              `json:"credential,omitempty"`
	Session    string              `json:"session,omitempty"`
	Tool       string              `json:"tool"`
	Decision   permission.Behavior `json:"decision,omitempty"`
	Rule       string              `json:"rule,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Outcome    string              `json:"outcome"`
	Duration   float64             `json:"duration_ms"`
}

// A Pin is a tool that is withheld from models, because its server changed it after it had been allowed.
type Pin struct {
	File   string `json:"file"` // the configuration file that has the server
	Server string `json:"server"`
	Tool   string `json:"tool"` // "" for the instructions and groups of the server
	Diff   string `json:"diff"`
}

// id identifies the pin with this Diff, so that the user accepts only what was shown.
func (p Pin) id() string {
	data, _ := json.Marshal(p) // strings always encode
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// showGateways serves the running gateways and the pins that wait for the user.
func (h *Handler) showGateways(r *http.Request) (any, error) {
	type shownPin struct {
		Pin
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	out := struct {
		Known    bool       `json:"known"` // Options.Gateways is set
		Gateways []Gateway  `json:"gateways"`
		Pins     []shownPin `json:"pins"`
		Problem  string     `json:"problem,omitempty"`
	}{Known: h.opts.Gateways != nil, Gateways: []Gateway{}, Pins: []shownPin{}}
	var problem error
	if h.opts.Gateways != nil {
		var list []Gateway
		list, problem = h.opts.Gateways(r.Context())
		out.Gateways = append(out.Gateways, list...) // an empty list in JSON, not null
	}
	if h.opts.Pins != nil {
		pins, err := h.opts.Pins(r.Context())
		problem = errors.Join(problem, err)
		for _, p := range pins {
			s := shownPin{p, p.id(), escape(cmp.Or(p.Tool, "instructions and groups"))}
			s.Diff = escape(p.Diff)
			out.Pins = append(out.Pins, s)
		}
	}
	if problem != nil {
		out.Problem = problem.Error()
	}
	return out, nil
}

// acceptPin accepts the definition of a tool that the user was shown.
func (h *Handler) acceptPin(r *http.Request) (any, error) {
	var in struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, badBody(err)
	}
	if h.opts.Pins == nil || h.opts.Accept == nil {
		return nil, badRequest("tools are not accepted here; use kitbag mcp pins accept")
	}
	pins, err := h.opts.Pins(r.Context())
	if i := slices.IndexFunc(pins, func(p Pin) bool { return p.id() == in.ID }); i >= 0 {
		return struct{}{}, h.opts.Accept(r.Context(), pins[i])
	}
	return nil, cmp.Or(err, error(badRequest("the tool has been changed again, or was accepted; look at what it is now")))
}

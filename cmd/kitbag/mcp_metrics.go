package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// gatewayMetrics are the metrics at /metrics, in the text format of Prometheus. The labels only have names of
// configured servers, never text of a client.
type gatewayMetrics struct {
	gateway                    *mcpgateway.Gateway // set before the first request
	calls, approvals, duration *metrics.Set
}

func newGatewayMetrics() *gatewayMetrics {
	return &gatewayMetrics{calls: metrics.NewSet(), approvals: metrics.NewSet(), duration: metrics.NewSet()}
}

const (
	callsName     = "kitbag_mcp_calls_total"
	approvalsName = "kitbag_mcp_asks_total"
	durationName  = "kitbag_mcp_call_duration_seconds"
)

var durationBuckets = metrics.ExponentialBuckets(0.001, 4, 10)

// record counts a call.
func (m *gatewayMetrics) record(r mcpserver.Record) {
	server := m.gateway.ServerOf(r.Tool)
	m.calls.GetOrCreateCounter(fmt.Sprintf("%s{outcome=%q,server=%q}", callsName, r.Outcome, server)).Inc()
	name := fmt.Sprintf("%s{server=%q}", durationName, server)
	m.duration.GetOrCreatePrometheusHistogramExt(name, durationBuckets).Update(r.Duration / 1000) // ms to s
	if r.Decision == permission.Ask {
		m.approvals.GetOrCreateCounter(fmt.Sprintf("%s{server=%q}", approvalsName, server)).Inc()
	}
}

// ServeHTTP writes all metrics. Those that are not counted here are asked of the gateway.
func (m *gatewayMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	head(w, callsName, "counter", "Calls by server and outcome.")
	m.calls.WritePrometheus(w)
	head(w, approvalsName, "counter", "Calls that needed approval.")
	m.approvals.WritePrometheus(w)
	head(w, durationName, "histogram", "Duration of calls, including approval.")
	m.duration.WritePrometheus(w)

	status, loads := m.gateway.Status(), m.gateway.Loads()
	name := head(w, "kitbag_mcp_upstream_state", "gauge", "1 for the current state of a server.")
	for _, s := range status {
		fmt.Fprintf(w, "%s{server=%q,state=%q} 1\n", name, s.Name, s.State)
	}
	name = head(w, "kitbag_mcp_upstream_restarts_total", "counter", "Restarts of a server.")
	for _, s := range status {
		fmt.Fprintf(w, "%s{server=%q} %d\n", name, s.Name, s.Restarts)
	}
	for _, family := range []struct {
		name, help string
		value      func(mcpgateway.ServerLoad) int
	}{
		{"tools", "Number of tools that a server has listed.", func(l mcpgateway.ServerLoad) int { return l.Tools }},
		{"list_bytes", "Size of the definitions of a server's tools.", func(l mcpgateway.ServerLoad) int { return l.Bytes }},
		{"withheld_tools", "Tools that have changed since they were allowed: see kitbag mcp pins.",
			func(l mcpgateway.ServerLoad) int { return l.Withheld }},
	} {
		name := head(w, "kitbag_mcp_upstream_"+family.name, "gauge", family.help)
		for _, l := range loads {
			fmt.Fprintf(w, "%s{server=%q} %d\n", name, l.Server, family.value(l))
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second) // shorter than the default timeout of a scrape
	defer cancel()
	if v, err := m.gateway.Toolkit.View(ctx, new(toolkit.Scope)); err == nil { // on failure, scrape the other metrics
		name = head(w, "kitbag_mcp_first_list_bytes", "gauge", "Size of a new session's list of tools; "+
			"the difference from the sum of upstream_list_bytes is saved in each request to a model.")
		fmt.Fprintf(w, "%s %d\n", name, v.Cost().Total.Bytes)
	}
	name = head(w, "kitbag_mcp_list_bytes_saved_total", "counter",
		"Bytes that clients did not get, since their lists of tools were shorter than lists of all known tools.")
	fmt.Fprintf(w, "%s %d\n", name, m.gateway.Saved())
	name = head(w, "kitbag_mcp_config_revision", "gauge", "Number of the configuration; each reload increases it.")
	fmt.Fprintf(w, "%s %d\n", name, m.gateway.Revision().Number)
}

// head writes what a scraper reads first about a metric, and returns its name. A client that has left gets the rest of
// nothing, so errors do not matter.
func head(w io.Writer, name, kind, help string) string {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
	return name
}

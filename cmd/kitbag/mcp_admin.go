package main

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kitbag-go/kitbag/internal/hostcheck"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// gatewayMetrics are the metrics at /metrics. Their labels have names of configured servers, never what a client sent.
type gatewayMetrics struct {
	gateway  *mcpgateway.Gateway // set before the first request
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	asks     *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	state, restarts, tools, bytes, withheld, first, saved, revision *prometheus.Desc
}

func newGatewayMetrics() *gatewayMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kitbag_mcp_"+name, help, labels, nil)
	}
	m := &gatewayMetrics{
		registry: prometheus.NewRegistry(),
		calls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kitbag_mcp_calls_total", Help: "Calls by server and outcome."}, []string{"server", "outcome"}),
		asks:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kitbag_mcp_asks_total", Help: "Calls that needed approval."}, []string{"server"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kitbag_mcp_call_duration_seconds", Help: "Duration of calls, including approval.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"server"}),
		state:    desc("upstream_state", "1 for the current state of a server.", "server", "state"),
		restarts: desc("upstream_restarts_total", "Restarts of a server.", "server"),
		tools:    desc("upstream_tools", "Tools of a server that were listed.", "server"),
		bytes:    desc("upstream_list_bytes", "Size of the definitions of a server's tools.", "server"),
		withheld: desc("upstream_withheld_tools", "Tools that have changed since they were allowed: see kitbag mcp pins.", "server"),
		first:    desc("first_list_bytes", "Size of the list of a new session; the sum of upstream_list_bytes less this is what each request of a model saves."),
		saved:    desc("list_bytes_saved_total", "By how much the lists of tools that clients got were shorter than lists of all known tools."),
		revision: desc("config_revision", "Number of the configuration, which grows with each reload."),
	}
	m.registry.MustRegister(m, m.calls, m.asks, m.seconds)
	return m
}

// record counts a call.
func (m *gatewayMetrics) record(r mcpserver.Record) {
	server := m.gateway.ServerOf(r.Tool)
	m.calls.WithLabelValues(server, string(r.Outcome)).Inc()
	m.seconds.WithLabelValues(server).Observe(r.Duration / 1000)
	if r.Decision == permission.Ask {
		m.asks.WithLabelValues(server).Inc()
	}
}

// Describe implements [prometheus.Collector].
func (m *gatewayMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.restarts, m.tools, m.bytes, m.withheld, m.first, m.saved, m.revision} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *gatewayMetrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range m.gateway.Status() {
		gauge(m.state, 1, s.Name, s.State)
		out <- prometheus.MustNewConstMetric(m.restarts, prometheus.CounterValue, float64(s.Restarts), s.Name)
	}
	for _, l := range m.gateway.Loads() {
		gauge(m.tools, float64(l.Tools), l.Server)
		gauge(m.bytes, float64(l.Bytes), l.Server)
		gauge(m.withheld, float64(l.Withheld), l.Server)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if v, err := m.gateway.Toolkit.View(ctx, new(toolkit.Scope)); err == nil {
		gauge(m.first, float64(v.Cost().Total.Bytes))
	}
	out <- prometheus.MustNewConstMetric(m.saved, prometheus.CounterValue, float64(m.gateway.Saved()))
	gauge(m.revision, float64(m.gateway.Revision().Number))
}

// adminHandler serves /livez, /readyz and /metrics to everyone, and the rest to administrators (see mayAdminister): POST
// /reload reloads the configuration, GET /logins lists the logins of users to servers, and DELETE
// /logins?server=…&user=… removes one.
func adminHandler(m *gatewayMetrics, token string, reload func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", m.gateway.Health())
	admin := func(pattern string, do func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !mayAdminister(r, token) {
				http.Error(w, pattern+" needs the token in $"+adminTokenVar+": send Authorization: Bearer TOKEN", http.StatusForbidden)
				return
			}
			if err := do(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			}
		})
	}
	admin("POST /reload", func(w http.ResponseWriter, r *http.Request) error {
		if err := reload(r.Context()); err != nil {
			return err
		}
		fmt.Fprintln(w, m.gateway.Revision())
		return nil
	})
	admin("GET /logins", func(w http.ResponseWriter, r *http.Request) error {
		all, err := m.gateway.Logins(r.Context())
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(append([]mcpgateway.Login{}, all...)) // never null
	})
	admin("DELETE /logins", func(_ http.ResponseWriter, r *http.Request) error {
		return m.gateway.Logout(r.Context(), r.FormValue("server"), r.FormValue("user"))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// adminTokenVar is the environment variable of the administrator's token.
const adminTokenVar = "KITBAG_ADMIN_TOKEN"

// mayAdminister reports whether a request has the token, or, if the token is empty, is from this machine and was not
// forwarded by a proxy. It rejects requests of pages in a browser.
func mayAdminister(r *http.Request, token string) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	if token == "" {
		for _, header := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
			if r.Header.Get(header) != "" {
				return false // a proxy on this machine forwards the request of another machine
			}
		}
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		return err == nil && from.Addr().Unmap().IsLoopback()
	}
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) == 1
}

// onlyHosts refuses requests whose Host is neither an IP address, localhost nor one of the names.
func onlyHosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hostcheck.LocalOrAddress(r.Host, names) {
			http.Error(w, "unknown Host; use an address, or add the name to hosts in the --config file", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

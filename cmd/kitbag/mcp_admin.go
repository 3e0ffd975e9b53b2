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

// gatewayMetrics are the metrics at /metrics. The labels only have names of configured servers, never text of a client.
type gatewayMetrics struct {
	gateway   *mcpgateway.Gateway // set before the first request
	registry  *prometheus.Registry
	calls     *prometheus.CounterVec
	approvals *prometheus.CounterVec
	duration  *prometheus.HistogramVec

	// Collect asks the gateway for the values of the following metrics.
	state, restarts, tools, listBytes, withheld, firstBytes, savedBytes, revision *prometheus.Desc
}

func newGatewayMetrics() *gatewayMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kitbag_mcp_"+name, help, labels, nil)
	}
	m := &gatewayMetrics{
		registry:   prometheus.NewRegistry(),
		calls:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kitbag_mcp_calls_total", Help: "Calls by server and outcome."}, []string{"server", "outcome"}),
		approvals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kitbag_mcp_asks_total", Help: "Calls that needed approval."}, []string{"server"}),
		duration:   prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kitbag_mcp_call_duration_seconds", Help: "Duration of calls, including approval.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"server"}),
		state:      desc("upstream_state", "1 for the current state of a server.", "server", "state"),
		restarts:   desc("upstream_restarts_total", "Restarts of a server.", "server"),
		tools:      desc("upstream_tools", "Number of tools that a server has listed.", "server"),
		listBytes:  desc("upstream_list_bytes", "Size of the definitions of a server's tools.", "server"),
		withheld:   desc("upstream_withheld_tools", "Tools that have changed since they were allowed: see kitbag mcp pins.", "server"),
		firstBytes: desc("first_list_bytes", "Size of a new session's list of tools; the difference from the sum of upstream_list_bytes is saved in each request to a model."),
		savedBytes: desc("list_bytes_saved_total", "Bytes that clients did not get, since their lists of tools were shorter than lists of all known tools."),
		revision:   desc("config_revision", "Number of the configuration; each reload increases it."),
	}
	m.registry.MustRegister(m, m.calls, m.approvals, m.duration)
	return m
}

// record counts a call.
func (m *gatewayMetrics) record(r mcpserver.Record) {
	server := m.gateway.ServerOf(r.Tool)
	m.calls.WithLabelValues(server, string(r.Outcome)).Inc()
	m.duration.WithLabelValues(server).Observe(r.Duration / 1000) // milliseconds to seconds
	if r.Decision == permission.Ask {
		m.approvals.WithLabelValues(server).Inc()
	}
}

// Describe implements [prometheus.Collector].
func (m *gatewayMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.restarts, m.tools, m.listBytes, m.withheld, m.firstBytes, m.savedBytes, m.revision} {
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
		gauge(m.listBytes, float64(l.Bytes), l.Server)
		gauge(m.withheld, float64(l.Withheld), l.Server)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // shorter than the default timeout of a scrape
	defer cancel()
	if v, err := m.gateway.Toolkit.View(ctx, new(toolkit.Scope)); err == nil { // on failure, scrape the other metrics
		gauge(m.firstBytes, float64(v.Cost().Total.Bytes))
	}
	out <- prometheus.MustNewConstMetric(m.savedBytes, prometheus.CounterValue, float64(m.gateway.Saved()))
	gauge(m.revision, float64(m.gateway.Revision().Number))
}

// adminHandler serves /livez, /readyz and /metrics to everyone, and the rest to administrators (see mayAdminister): POST
// /reload reloads the configuration, GET /logins lists the logins of users to servers, and DELETE
// /logins?server=…&user=… removes one.
func adminHandler(m *gatewayMetrics, token string, reload func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", m.gateway.Health())
	handleAdmin := func(pattern string, handle func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !mayAdminister(r, token) {
				http.Error(w, pattern+" needs the token in $"+adminTokenVar+": send Authorization: Bearer TOKEN", http.StatusForbidden)
				return
			}
			if err := handle(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			}
		})
	}
	handleAdmin("POST /reload", func(w http.ResponseWriter, r *http.Request) error {
		if err := reload(r.Context()); err != nil {
			return err
		}
		fmt.Fprintln(w, m.gateway.Revision())
		return nil
	})
	handleAdmin("GET /logins", func(w http.ResponseWriter, r *http.Request) error {
		all, err := m.gateway.Logins(r.Context())
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(append([]mcpgateway.Login{}, all...)) // [] without a login, not null
	})
	handleAdmin("DELETE /logins", func(_ http.ResponseWriter, r *http.Request) error {
		return m.gateway.Logout(r.Context(), r.FormValue("server"), r.FormValue("user"))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// adminTokenVar is the environment variable with the token of administrators.
const adminTokenVar = "KITBAG_ADMIN_TOKEN"

// mayAdminister reports whether a request has the token, or, if the token is empty, is from this machine and was not
// forwarded by a proxy. It rejects all requests of web pages, which any site could make the administrator's browser send.
func mayAdminister(r *http.Request, token string) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	if token == "" {
		// A proxy on this machine may have forwarded the request of another machine.
		forwarded := r.Header.Get("X-Forwarded-For") + r.Header.Get("Forwarded") + r.Header.Get("Via")
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		return forwarded == "" && err == nil && from.Addr().Unmap().IsLoopback()
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

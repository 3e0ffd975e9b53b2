package main

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/kitbag-go/kitbag/internal/hostcheck"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

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
	mux.Handle("GET /metrics", m)
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

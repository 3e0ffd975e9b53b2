package mcpgateway

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/kitbag-go/kitbag/internal/envref"
	"github.com/kitbag-go/kitbag/mcpserver"
)

func (r *reader) audit(data json.RawMessage) {
	var file string
	errsBefore := len(r.errs)
	ms, ok := r.fields("audit", data, field{"file", &file, "the name of a file"}, field{name: "database"}, field{"arguments", &r.cfg.AuditArguments, "true or false"})
	if !ok {
		return
	}
	r.cfg.AuditDatabase, _ = r.expand("audit.database", ms.get("database"))
	if (file == "") == (r.cfg.AuditDatabase == "") && len(r.errs) == errsBefore {
		r.fail("audit", "give one of file, the name of a file for the records, and database, the URL of a Postgres database")
	}
	if r.cfg.AuditFile = file; file != "" && file != "-" {
		r.cfg.AuditFile = r.path(file)
	}
}

func (r *reader) replicas(data json.RawMessage) {
	ms, ok := r.object("replicas", data, "store", "url")
	if !ok {
		return
	}
	r.cfg.ReplicaStore, ok = r.expand("replicas.store", ms.get("store"))
	if ok && r.cfg.ReplicaStore == "" {
		r.fail("replicas.store", "is missing or empty; set it to the URL of a Postgres database that all replicas use, such as ${KITBAG_REPLICAS}")
	}
	address, ok := r.expand("replicas.url", ms.get("url"))
	if u, err := url.Parse(address); ok && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		r.fail("replicas.url", "must be the http or https URL under which the other replicas reach this one, such as http://10.0.0.7:8080/; it is %q", address)
	}
	r.cfg.Serve.Replicas = &mcpserver.Replicas{URL: address}
}

// expand reads a string that may be missing, and replaces its references to environment variables. ok is false if it has
// reported an error.
func (r *reader) expand(key string, data json.RawMessage) (s string, ok bool) {
	errsBefore := len(r.errs)
	r.decode(key, data, &s, "a string")
	s, err := envref.Expand(s, r.dir)
	if err != nil {
		r.fail(key, "%w", err)
	}
	return s, len(r.errs) == errsBefore
}

// rates reads the rates; Config.check checks the values.
func (r *reader) rates(data json.RawMessage) {
	var rows []json.RawMessage
	r.decode("rates", data, &rows, "a list of objects")
	for i, row := range rows {
		key := fmt.Sprintf("rates[%d]", i)
		var rate mcpserver.Rate
		ms, _ := r.fields(key, row, field{"tools", &rate.Tools, "a glob over names of tools"}, field{"calls", &rate.Calls, "a number"},
			field{name: "every"}, field{"each", &rate.Each, "true or false"})
		rate.Every = r.duration(key+".every", ms.get("every"))
		r.cfg.Serve.Rates = append(r.cfg.Serve.Rates, rate)
	}
}

// duration reads a duration that may be missing.
func (r *reader) duration(key string, data json.RawMessage) (d time.Duration) {
	var s string
	if r.decode(key, data, &s, "a duration"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil || d <= 0 {
			r.fail(key, `must be a duration such as "30s"; it is %q`, s)
		}
	}
	return d
}

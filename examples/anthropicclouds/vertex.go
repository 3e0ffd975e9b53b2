package anthropicclouds

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"

	"github.com/kitbag-go/kitbag/model/anthropic"
)

// VertexScope is the scope that the tokens for Vertex need.
const VertexScope = "https://www.googleapis.com/auth/cloud-platform"

// Vertex returns a model on Google Vertex AI, in a project and in a location such as "global", "eu"
// or "europe-west1". Tokens come, for example, from google.DefaultTokenSource with VertexScope. It
// fails as anthropic.New does, and without tokens, a project or a location.
func Vertex(
	tokens oauth2.TokenSource, project, location string, cfg anthropic.Config,
) (*anthropic.Model, error) {
	if tokens == nil || project == "" || location == "" {
		return nil, errors.New("no tokens, project or location for Vertex; all of them are needed")
	}
	return newModel(cfg, "https://"+vertexHost(location), func(next http.RoundTripper) http.RoundTripper {
		signing := &oauth2.Transport{Source: tokens, Base: next}
		return &vertex{project: project, location: location, next: signing}
	})
}

func vertexHost(location string) string {
	switch location {
	case "global":
		return "aiplatform.googleapis.com"
	case "eu", "us": // several regions
		return "aiplatform." + location + ".rep.googleapis.com"
	}
	return location + "-aiplatform.googleapis.com"
}

// A vertex is a transport that calls streamRawPredict of Vertex's API: the model is in the path, and
// the version is in the body.
type vertex struct {
	project, location string
	next              http.RoundTripper
}

func (v *vertex) RoundTrip(original *http.Request) (*http.Response, error) {
	r, err := readRequest(original)
	if err != nil {
		return nil, fmt.Errorf("vertex: %w", err)
	}
	r.body["anthropic_version"] = json.RawMessage(`"vertex-2023-10-16"`)
	path := fmt.Sprintf("/v1/projects/%s/locations/%s/publishers/anthropic/models/%s:streamRawPredict",
		url.PathEscape(v.project), url.PathEscape(v.location), url.PathEscape(r.model))
	if _, err := r.finish(path); err != nil {
		return nil, fmt.Errorf("vertex: %w", err)
	}
	return v.next.RoundTrip(r.Request)
}

package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/kitbag-go/kitbag/mcpgateway"
)

// TestKubernetes checks docs/deploy/kubernetes.yaml against the types of Kubernetes, without unknown fields, and that
// its parts fit together.
func TestKubernetes(t *testing.T) {
	data, err := os.ReadFile("../../../docs/deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config corev1.ConfigMap
	var deployment appsv1.Deployment
	var service corev1.Service
	var budget policyv1.PodDisruptionBudget
	kinds := map[string]any{"ConfigMap": &config, "Deployment": &deployment, "Service": &service, "PodDisruptionBudget": &budget}
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		into, ok := kinds[head.Kind]
		if !ok {
			t.Fatalf("unknown or repeated kind %q", head.Kind)
		}
		delete(kinds, head.Kind)
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("missing: %v", kinds)
	}
	for name, value := range map[string]string{"CI_TOKEN": "0123456789abcdef", "KITBAG_REPLICAS": "postgres://mcp@db/mcp", "POD_IP": "10.0.0.7"} {
		t.Setenv(name, value)
	}
	file := filepath.Join(t.TempDir(), "kitbag.json")
	if err := os.WriteFile(file, []byte(config.Data["kitbag.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := mcpgateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Serve.Replicas == nil || service.Spec.SessionAffinity != "" {
		t.Errorf("several replicas need a shared store, and no affinity: %v, %q", cfg.Serve.Replicas, service.Spec.SessionAffinity)
	}
	labels := deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{"deployment": deployment.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "budget": budget.Spec.Selector.MatchLabels} {
		if len(selector) == 0 || selector["app"] != labels["app"] {
			t.Errorf("the selector of the %s is %v, the labels are %v", name, selector, labels)
		}
	}
	c := deployment.Spec.Template.Spec.Containers[0]
	if len(c.Env) != 1 || c.Env[0].Name != "POD_IP" || c.Env[0].ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("the address for the other replicas comes from %v", c.Env)
	}
	for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "admin" {
			t.Errorf("the probe for %s is %v", path, probe)
		}
	}
	if got := service.Spec.Ports[0].TargetPort.String(); got != c.Ports[0].Name {
		t.Errorf("the service's port is %q", got)
	}
}

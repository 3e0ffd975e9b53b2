package shell

import (
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// kubeArgs raises an alarm for secrets.
func kubeArgs(w *walker, c *command, p *parsed) string {
	// An address may be spelled with percent signs.
	if v, ok := p.value("--raw"); ok && (!v.known || strings.Contains(v.text, "%") || strings.Contains(strings.ToLower(v.text), "secret")) {
		w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
	}
	for _, o := range []string{"-o", "--output"} {
		v, _ := p.value(o)
		if format, name, ok := strings.Cut(strings.TrimPrefix(v.text, "="), "="); ok && strings.HasSuffix(format, "-file") {
			file := v
			file.text = name
			p.ops = append(p.ops, roleArg{arg: file, kind: 'r', opt: true}) // an error message shows the content of a template file
		}
	}
	for _, op := range p.ops {
		if op.opt && strings.Contains(op.text, "://") {
			return op.raw + " is on another machine"
		}
	}
	for _, op := range p.ops {
		for name := range strings.SplitSeq(op.text, ",") {
			if i := strings.IndexAny(name, "/."); i >= 0 { // such as secrets.v1.
				name = name[:i]
			}
			name = strings.ToLower(name)
			if (name == "secret" || name == "secrets") && (p.has("-o", "--output") || p.has("--template")) {
				w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
				return ""
			}
		}
	}
	if raw, ok := p.value("--raw"); ok && !plainEndpoint().MatchString(raw.text) {
		return podsShown
	}
	return ""
}

// plainKinds are resources without the environment of a container.
var plainKinds = sync.OnceValue(func() []string {
	return strings.Fields("no node nodes ns namespace namespaces svc service services ep endpoints endpointslice endpointslices ing ingress ingresses ingressclass ingressclasses ev event events " +
		"pv persistentvolume persistentvolumes pvc persistentvolumeclaim persistentvolumeclaims sc storageclass storageclasses cm configmap configmaps sa serviceaccount serviceaccounts hpa horizontalpodautoscaler " +
		"horizontalpodautoscalers pdb poddisruptionbudget poddisruptionbudgets netpol networkpolicy networkpolicies quota resourcequota resourcequotas limits limitrange limitranges role roles rolebinding rolebindings " +
		"clusterrole clusterroles clusterrolebinding clusterrolebindings crd crds customresourcedefinition customresourcedefinitions lease leases pc priorityclass priorityclasses")
})

// podsShown is why a command of kubectl that shows the environment of containers is not read-only.
const podsShown = "it shows the environment of containers, in which credentials may be"

// kubeGetArgs is kubeArgs for kubectl get.
func kubeGetArgs(w *walker, c *command, p *parsed) string {
	if why := kubeArgs(w, c, p); why != "" {
		return why
	}
	for _, o := range []string{"-o", "--output", "--template"} {
		format, ok := p.value(o)
		text := strings.TrimPrefix(format.text, "=")
		if o == "--template" {
			text = "template=" + text
		}
		plain := format.known && p.kindKnown() && (text == "wide" || text == "name" || plainTemplate(text))
		if ok && !plain && !p.onlyKinds(plainKinds()) {
			return podsShown
		}
	}
	return ""
}

// kindKnown reports whether the command names the kind of the resources literally.
func (p *parsed) kindKnown() bool {
	for _, op := range p.ops {
		if !op.opt {
			return op.known || strings.Contains(op.prefix(), "/")
		}
	}
	return true
}

// kubeHistoryArgs is kubeArgs for kubectl rollout, which with a format shows whole templates of pods.
func kubeHistoryArgs(w *walker, c *command, p *parsed) string {
	for _, o := range []string{"-o", "--output", "--template"} {
		if _, ok := p.value(o); ok {
			return podsShown
		}
	}
	return kubeArgs(w, c, p)
}

// kubeDescribeArgs is kubeArgs for kubectl describe, which prints the tokens of service accounts.
func kubeDescribeArgs(w *walker, c *command, p *parsed) string {
	if why := kubeArgs(w, c, p); why != "" {
		return why
	}
	if !p.onlyKinds(plainKinds()) {
		return podsShown
	}
	return ""
}

// plainEndpoint matches addresses of the cluster that do not return objects.
var plainEndpoint = lazy.Regexp(`^/(version|metrics|api|apis|openapi/v[23]|(healthz|livez|readyz)(/[a-z0-9-]+)?|apis/metrics\.k8s\.io/[a-z0-9/.-]*)$`)

// onlyKinds reports whether the operands name only resources of these kinds.
func (p *parsed) onlyKinds(kinds []string) bool {
	named, ok := false, true
	for _, op := range p.ops {
		if op.opt {
			continue
		}
		if named && !strings.Contains(op.prefix(), "/") { // the name of a resource
			continue
		}
		named = true
		for kind := range strings.SplitSeq(op.prefix(), ",") {
			kind, _, slash := strings.Cut(kind, "/")
			kind, _, _ = strings.Cut(kind, ".")
			ok = ok && (op.known || slash) && slices.Contains(kinds, strings.ToLower(kind))
		}
	}
	return named && ok && !p.has("-f", "--filename")
}

var (
	// Texts, loops and indexes inside the braces of a template. Outside of braces "[{.spec}]" shows a field.
	templateNoise = lazy.Regexp(`"[^"{]*"|'[^'{]*'|\brange [^{}]*|\[[^\]{]*\]`)
	templatePath  = lazy.Regexp(`(\.[A-Za-z_][\w-]*)+`)
	templateField = lazy.Regexp("\\[\\s*['\"]|\\\\['\"]|`") // a field as a string; quotes in texts
)

// plainLeaves are fields of resources. Neither they nor the fields in them have the environment of a container.
var plainLeaves = sync.OnceValue(func() []string {
	return strings.Fields("name namespace uid phase nodeName image imageID images replicas readyReplicas availableReplicas updatedReplicas unavailableReplicas podIP hostIP ip hostname host port ports nodePort targetPort " +
		"protocol type status reason message creationTimestamp deletionTimestamp startTime completionTime startedAt finishedAt lastTransitionTime restartCount ready labels kind apiVersion resourceVersion generation " +
		"observedGeneration conditions containerStatuses initContainerStatuses loadBalancer ingress addresses address clusterIP clusterIPs externalIPs capacity allocatable storage storageClassName cpu memory requests limits " +
		"resources serviceAccountName serviceAccount restartPolicy schedule suspend lastScheduleTime completions succeeded failed active version kubeletVersion osImage containerRuntimeVersion taints selector matchLabels ownerReferences")
})

// plainTemplate reports whether an output format of kubectl only shows plainLeaves.
func plainTemplate(format string) bool {
	kind, text, _ := strings.Cut(format, "=")
	if !slices.Contains([]string{"jsonpath", "jsonpath-as-json", "go-template", "template", "custom-columns"}, kind) {
		return false
	}
	if kind == "custom-columns" {
		columns := strings.Split(text, ",")
		for i, column := range columns {
			_, path, _ := strings.Cut(column, ":") // the column's title is before the colon
			if path = strings.TrimPrefix(path, "{"); !strings.HasPrefix(path, ".") {
				return false
			}
			columns[i] = path
		}
		text = strings.Join(columns, " ")
	}
	if templateField().MatchString(text) {
		return false
	}
	text = templateNoise().ReplaceAllString(text, "")
	for _, path := range templatePath().FindAllString(text, -1) {
		if !slices.Contains(plainLeaves(), path[strings.LastIndexByte(path, '.')+1:]) {
			return false
		}
	}
	return !strings.ContainsAny(templatePath().ReplaceAllString(text, ""), ".@$*")
}

// topArgs applies psArgs to the options that docker top passes to ps.
func topArgs(w *walker, _ *command, p *parsed) string {
	if len(p.args) < 2 {
		return ""
	}
	return psArgs(w, &command{args: p.args}, p)
}

// unitArgs requires that systemctl show is asked for certain properties, none of which has the environment of a unit.
func unitArgs(_ *walker, _ *command, p *parsed) string {
	asked := false
	for _, o := range p.given {
		switch o.name {
		case "-p", "-P", "--property":
			asked = true
			if !o.value.known || strings.Contains(strings.ToLower(o.value.text), "env") {
				return environmentShown
			}
		}
	}
	if !asked {
		return environmentShown
	}
	return ""
}

// envFileArgs records that the values of .env are shown, unless an option limits the output to names.
func envFileArgs(_ *walker, _ *command, p *parsed) string {
	if !p.has("--services", "--volumes", "--images", "--profiles", "-q", "--quiet", "--hash") {
		p.ops = append(p.ops, roleArg{arg: anything("…"), kind: 'r', opt: true})
	}
	return ""
}

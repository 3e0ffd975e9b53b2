package shell

import (
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// kubeArgs raises an alarm for commands that show secrets of the cluster, finds the files that kubectl reads, and refuses
// addresses that are not harmless.
func kubeArgs(w *walker, c *command, p *parsed) string {
	raw, hasRaw := p.value("--raw")
	if hasRaw && (!raw.known || strings.Contains(raw.text, "%") || strings.Contains(strings.ToLower(raw.text), "secret")) { // %73ecrets
		w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
	}
	for _, o := range []string{"-o", "--output"} {
		v, _ := p.value(o)
		if format, name, ok := strings.Cut(strings.TrimPrefix(v.text, "="), "="); ok && strings.HasSuffix(format, "-file") {
			v.text = name
			p.ops = append(p.ops, roleArg{arg: v, kind: 'r', ofOption: true}) // an error message shows the content of a template file
		}
	}
	for _, op := range p.ops {
		if op.ofOption && strings.Contains(op.text, "://") {
			return op.raw + " is on another machine"
		}
	}
	showsFields := p.has("-o", "--output") || p.has("--template")
	for _, op := range p.ops {
		for kind := range strings.SplitSeq(strings.ToLower(op.text), ",") {
			if i := strings.IndexAny(kind, "/."); i >= 0 { // secret/NAME, secrets.v1.
				kind = kind[:i]
			}
			if showsFields && (kind == "secret" || kind == "secrets") {
				w.alarm(Credentials, c.String()+": it shows secrets of the cluster")
				return ""
			}
		}
	}
	if hasRaw && !plainEndpoint().MatchString(raw.text) {
		return podsShown
	}
	return ""
}

// plainKinds are the kinds of resources that do not contain the environment of a container.
var plainKinds = sync.OnceValue(func() []string {
	return strings.Fields("no node nodes ns namespace namespaces svc service services ep endpoints endpointslice endpointslices ing ingress ingresses ingressclass ingressclasses ev event events " +
		"pv persistentvolume persistentvolumes pvc persistentvolumeclaim persistentvolumeclaims sc storageclass storageclasses cm configmap configmaps sa serviceaccount serviceaccounts hpa horizontalpodautoscaler " +
		"horizontalpodautoscalers pdb poddisruptionbudget poddisruptionbudgets netpol networkpolicy networkpolicies quota resourcequota resourcequotas limits limitrange limitranges role roles rolebinding rolebindings " +
		"clusterrole clusterroles clusterrolebinding clusterrolebindings crd crds customresourcedefinition customresourcedefinitions lease leases pc priorityclass priorityclasses")
})

// podsShown is why a command of kubectl that may show the environment of containers is not read-only.
const podsShown = "it shows the environment of containers, in which credentials may be"

// kubeGetArgs also refuses a kubectl get whose format may show the environment of containers.
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

// kindKnown reports whether the first operand, the kind of the resources, is literal, or is KIND/NAME.
func (p *parsed) kindKnown() bool {
	for _, op := range p.ops {
		if !op.ofOption {
			return op.known || strings.Contains(op.prefix(), "/")
		}
	}
	return true
}

// kubeHistoryArgs also refuses a kubectl rollout history with a format, which shows whole templates of pods.
func kubeHistoryArgs(w *walker, c *command, p *parsed) string {
	for _, o := range []string{"-o", "--output", "--template"} {
		if _, ok := p.value(o); ok {
			return podsShown
		}
	}
	return kubeArgs(w, c, p)
}

// kubeDescribeArgs also refuses a kubectl describe of resources other than plainKinds.
func kubeDescribeArgs(w *walker, c *command, p *parsed) string {
	if why := kubeArgs(w, c, p); why != "" {
		return why
	}
	if !p.onlyKinds(plainKinds()) {
		return podsShown
	}
	return ""
}

// plainEndpoint matches paths of kubectl get --raw that return no resources.
var plainEndpoint = lazy.Regexp(`^/(version|metrics|api|apis|openapi/v[23]|(healthz|livez|readyz)(/[a-z0-9-]+)?|apis/metrics\.k8s\.io/[a-z0-9/.-]*)$`)

// onlyKinds reports whether the operands name only resources of these kinds.
func (p *parsed) onlyKinds(kinds []string) bool {
	first := true
	for _, op := range p.ops {
		// The first operand has kinds, KIND,KIND or KIND/NAME. Later ones are names, or KIND/NAME.
		if op.ofOption || !first && !strings.Contains(op.prefix(), "/") {
			continue
		}
		first = false
		for kind := range strings.SplitSeq(op.prefix(), ",") {
			kind, _, slash := strings.Cut(kind, "/")
			kind, _, _ = strings.Cut(kind, ".")
			if !op.known && !slash || !slices.Contains(kinds, strings.ToLower(kind)) {
				return false
			}
		}
	}
	return !first && !p.has("-f", "--filename")
}

var (
	// Texts, loops and indexes inside the braces of a template. Outside of braces "[{.spec}]" shows a field.
	templateNoise = lazy.Regexp(`"[^"{]*"|'[^'{]*'|\brange [^{}]*|\[[^\]{]*\]`)
	templatePath  = lazy.Regexp(`(\.[A-Za-z_][\w-]*)+`)
	templateField = lazy.Regexp("\\[\\s*['\"]|\\\\['\"]|`") // a field as a string; quotes in texts
)

// plainLeaves are fields of resources that do not contain the environment of a container.
var plainLeaves = sync.OnceValue(func() []string {
	return strings.Fields("name namespace uid phase nodeName image imageID images replicas readyReplicas availableReplicas updatedReplicas unavailableReplicas podIP hostIP ip hostname host port ports nodePort targetPort " +
		"protocol type status reason message creationTimestamp deletionTimestamp startTime completionTime startedAt finishedAt lastTransitionTime restartCount ready labels kind apiVersion resourceVersion generation " +
		"observedGeneration conditions containerStatuses initContainerStatuses loadBalancer ingress addresses address clusterIP clusterIPs externalIPs capacity allocatable storage storageClassName cpu memory requests limits " +
		"resources serviceAccountName serviceAccount restartPolicy schedule suspend lastScheduleTime completions succeeded failed active version kubeletVersion osImage containerRuntimeVersion taints selector matchLabels ownerReferences")
})

// plainTemplate reports whether an output format of kubectl, KIND=TEMPLATE, only shows plainLeaves.
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
	// A "." or "@" alone is the current object, and "$" a variable.
	return !strings.ContainsAny(templatePath().ReplaceAllString(text, ""), ".@$*")
}

// topArgs applies psArgs to the options that docker top passes to ps.
func topArgs(w *walker, _ *command, p *parsed) string {
	if len(p.args) < 2 {
		return ""
	}
	return psArgs(w, &command{args: p.args}, p)
}

// unitArgs requires options of systemctl show that name properties, and refuses those with the environment of a unit.
func unitArgs(_ *walker, _ *command, p *parsed) string {
	hasProperty := false
	for _, o := range p.given {
		if slices.Contains([]string{"-p", "-P", "--property"}, o.name) {
			hasProperty = true
			if !o.value.known || strings.Contains(strings.ToLower(o.value.text), "env") {
				return environmentShown
			}
		}
	}
	if !hasProperty {
		return environmentShown
	}
	return ""
}

// envFileArgs records that docker compose config shows the values in .env, and in other files that the compose file
// names, unless an option limits the output to names.
func envFileArgs(_ *walker, _ *command, p *parsed) string {
	if !p.has("--services", "--volumes", "--images", "--profiles", "-q", "--quiet", "--hash") {
		p.ops = append(p.ops, roleArg{arg: anything("…"), kind: 'r', ofOption: true})
	}
	return ""
}

package deploy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// A service is a managed Kubernetes with what it refuses. docs/managed-clusters.md has the sources and their dates.
type service struct {
	name string
	// presets are those that the page names for the service, "" for none.
	presets []string
	// source is a page that the row of the service links.
	source string
	// system are the namespaces for which it wants no webhook to be called.
	system []string
	// refused are the resources, as group/resource, that it refuses in the rules of webhooks. unsafe are those that it
	// recommends not to have there.
	refused, unsafe []string
	// refusesURL is true if it refuses webhooks with a URL, and refusesHost if Pods cannot use the network of their node.
	refusesURL, refusesHost bool
	// taken are ports that something else has at the address of a Pod.
	taken []int32
}

// unsafeOnGKE are the resources of webhooks that GKE calls unsafe, which have no namespace. Leases are unsafe in the namespaces of
// the system only.
var unsafeOnGKE = []string{
	"/nodes", "authentication.k8s.io/tokenreviews", "authorization.k8s.io/subjectaccessreviews",
	"certificates.k8s.io/certificatesigningrequests",
}

var services = []service{
	{
		name: "EKS", presets: []string{"", "host-network.yaml"},
		source: "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html",
	},
	{
		name: "EKS Fargate", presets: []string{""}, source: "https://docs.aws.amazon.com/eks/latest/userguide/fargate.html",
		refusesHost: true, taken: []int32{10250},
	},
	{
		name: "AKS", presets: []string{"aks.yaml"}, source: "https://learn.microsoft.com/azure/aks/faq",
		system: []string{"kube-system"}, refusesURL: true,
	},
	{
		name: "GKE", presets: []string{"", "private-gke.yaml"},
		source: "https://cloud.google.com/kubernetes-engine/docs/how-to/optimize-webhooks",
		system: []string{"kube-system", "kube-node-lease"}, unsafe: unsafeOnGKE, refusesURL: true,
	},
	{
		name: "GKE Autopilot", presets: []string{"", "private-gke.yaml"},
		source: "https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security#built-in-security",
		system: []string{"kube-system", "kube-node-lease"}, refused: []string{"*/*"}, unsafe: unsafeOnGKE,
		refusesURL: true, refusesHost: true,
	},
}

// page is the document about managed clusters.
const managedPage = "../docs/managed-clusters.md"

// overlap returns which of the resources, as group/resource, are in the rules. A wildcard is in rules with wildcards only.
func overlap(rules []admissionregistrationv1.RuleWithOperations, resources []string) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if resource == "*/*" { // all resources, with all that is below them
					resource = "*"
				}
				for _, wanted := range resources {
					wantedGroup, wantedResource, _ := strings.Cut(wanted, "/")
					isIn := (group == "*" || group == wantedGroup) && (resource == "*" || resource == wantedResource)
					if isIn && !slices.Contains(all, wanted) {
						all = append(all, wanted)
					}
				}
			}
		}
	}
	return all
}

// clusterScoped returns the rules that can be for resources without a namespace.
func clusterScoped(rules []admissionregistrationv1.RuleWithOperations) (all []admissionregistrationv1.RuleWithOperations) {
	for _, rule := range rules {
		if rule.Scope == nil || *rule.Scope != admissionregistrationv1.NamespacedScope {
			all = append(all, rule)
		}
	}
	return all
}

// TestServices requires that nothing in the presets of a service is what the service refuses.
func TestServices(t *testing.T) {
	t.Parallel()
	text := readFile(t, managedPage)
	values := readFile(t, "../docs/managed-clusters/values.yaml")
	for _, s := range services {
		if !strings.Contains(text, "("+s.source+")") {
			t.Errorf("%s has no row of %s with a link to %s", managedPage, s.name, s.source)
		}
		for _, preset := range s.presets {
			t.Run(s.name+" "+preset, func(t *testing.T) {
				r := render(t, values, preset)
				s.checkPods(t, r)
				all := webhooks(t, manifests(t, r))
				if len(all) == 0 {
					t.Fatal("got no webhooks")
				}
				for _, w := range all {
					s.checkWebhook(t, &w)
				}
			})
		}
	}
}

func (s *service) checkWebhook(t *testing.T, w *admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	if got := append(overlap(w.Rules, s.refused), overlap(clusterScoped(w.Rules), s.unsafe)...); len(got) > 0 {
		t.Errorf("%s: got rules for %q", w.Name, got)
	}
	if s.refusesURL && w.ClientConfig.URL != nil {
		t.Errorf("%s: got the URL %s", w.Name, *w.ClientConfig.URL)
	}
	selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range s.system {
		if selector.Matches(labels.Set{"kubernetes.io/metadata.name": namespace}) {
			t.Errorf("%s: it is called for %s", w.Name, namespace)
		}
	}
}

func (s *service) checkPods(t *testing.T, r release) {
	t.Helper()
	pod := one[appsv1.Deployment](t, r, "Deployment").Spec.Template.Spec
	if s.refusesHost && (pod.HostNetwork || pod.HostPID || pod.HostIPC) {
		t.Error("got a Pod with namespaces of its node")
	}
	for _, container := range pod.Containers {
		if c := container.SecurityContext; c == nil || c.Privileged != nil && *c.Privileged {
			t.Errorf("container %s: got a privileged one, or one without a securityContext", container.Name)
		}
		for _, port := range container.Ports {
			if s.refusesHost && port.HostPort != 0 || slices.Contains(s.taken, port.ContainerPort) {
				t.Errorf("container %s: got the port %+v", container.Name, port)
			}
		}
	}
	if all := only[appsv1.DaemonSet](t, r, "DaemonSet"); len(all) > 0 {
		t.Error("got a DaemonSet")
	}
}

// TestServicesRefusePlugins requires that the page names the plugins whose own rules a service refuses or calls unsafe. A
// plugin that handles everything has the rules of its settings.
func TestServicesRefusePlugins(t *testing.T) {
	t.Parallel()
	var table map[string]handled
	if err := yaml.Unmarshal([]byte(readFile(t, tableFile)), &table); err != nil {
		t.Fatal(err)
	}
	named := func(overlaps func(rules []admissionregistrationv1.RuleWithOperations) []string) string {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(table)) {
			h := table[name]
			if rules := slices.Concat(h.Mutate, h.Validate); !h.Everything && len(overlaps(rules)) > 0 {
				names = append(names, "`"+name+"`")
			}
		}
		return strings.Join(names, ", ")
	}
	text := readFile(t, managedPage)
	for _, s := range services {
		refused := func(rules []admissionregistrationv1.RuleWithOperations) []string { return overlap(rules, s.refused) }
		unsafe := func(rules []admissionregistrationv1.RuleWithOperations) []string {
			return overlap(clusterScoped(rules), s.unsafe)
		}
		if names := named(refused); names != "" {
			if want := fmt.Sprintf("%s refuses the rules of %s", s.name, names); !strings.Contains(text, want) {
				t.Errorf("%s does not say: %s", managedPage, want)
			}
		}
		if names := named(unsafe); !strings.Contains(text, names) {
			t.Errorf("%s does not say that %s calls the rules of these unsafe: %s", managedPage, s.name, names)
		}
	}
}

// TestOverlap tests the comparison of rules with what is refused.
func TestOverlap(t *testing.T) {
	t.Parallel()
	f := func(group, resource string, want ...string) {
		t.Helper()
		rules := []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"apps", group}, Resources: []string{"deployments", resource},
		}}}
		if got := overlap(rules, []string{"*/*", "*/nodes/proxy", "/nodes", "a.io/b"}); !slices.Equal(got, want) {
			t.Errorf("%s/%s: got %q, want %q", group, resource, got, want)
		}
	}
	f("*", "*", "*/*", "*/nodes/proxy", "/nodes", "a.io/b")
	f("*", "*/*", "*/*", "*/nodes/proxy", "/nodes", "a.io/b")
	f("*", "nodes/proxy", "*/nodes/proxy")
	f("", "nodes", "/nodes")
	f("*", "nodes", "/nodes")
	f("", "*", "/nodes")
	f("a.io", "b", "a.io/b")
	f("", "pods")
}

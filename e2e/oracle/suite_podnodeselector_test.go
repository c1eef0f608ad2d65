package oracle_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// selectsNodes generates a request about pods with node selectors.
func (g *generator) selectsNodes() *oracle.Case {
	c := g.pod()
	if c.Operation == admission.Update && c.Kind == podKind && !g.in(8) {
		c.Operation, c.OldObject, c.Options = admission.Create, nil, &metav1.CreateOptions{}
	}
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		pod, ok := object.(*corev1.Pod)
		if !ok || g.in(8) {
			continue
		}
		pod.Spec.NodeSelector = nil
		for range g.IntN(4) {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = make(map[string]string)
			}
			pod.Spec.NodeSelector[g.nodeLabel()] = g.nodeValue()
		}
	}
	return c
}

func (g *generator) nodeLabel() string { return pick(g, "a", "b", "b", "example.com/disk") }

func (g *generator) nodeValue() string { return pick(g, "", "1", "1", "1", "2") }

// nodeSelector generates a selector for an annotation, which is seldom invalid.
func (g *generator) nodeSelector() string {
	if g.in(12) {
		return pick(g, "a", "a==1", "a!=1", "=1", "a=1,", ",", " ", "a=é", "/a=1", "a in (1)", "a="+strings.Repeat("x", 64))
	}
	return strings.Join(some(g, 3, func() string {
		space := pick(g, "", "", " ")
		return space + g.nodeLabel() + space + "=" + g.nodeValue() + space
	}), ",")
}

// selectingWorld generates some of the namespaces in requests, with selectors.
func selectingWorld(g *generator) oracle.World {
	return g.namespaces(func(n *corev1.Namespace) {
		if !g.in(3) {
			n.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/node-selector": g.nodeSelector(), "other": g.word()}
		}
	})
}

// namespaces generates a world with some of the namespaces in requests.
func (g *generator) namespaces(change func(n *corev1.Namespace)) oracle.World {
	var world oracle.World
	for _, name := range []string{"shop", "kube-system"} {
		if g.in(8) {
			continue
		}
		n := &corev1.Namespace{}
		n.Name = name
		n.Status.Phase = corev1.NamespaceActive
		change(n)
		world.Objects = append(world.Objects, n)
	}
	return world
}

func selectorVariants() []variant {
	const tables = `podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: infra = false, ` +
		`listed: "env=dev, infra=false, color=blue", prd: env=prd}`
	var all []variant
	for _, config := range []string{
		tables,
		"",
		`podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "a=1"}`,
		`podNodeSelectorPluginConfig: {shop: "b=1,a=1,example.com/disk=", kube-system: ""}`,
		`{"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "b=1", "shop": "b=1,a=1", "kube-system": ` +
			`"example.com/disk=1,a=1, b=1"}}`,
	} {
		all = append(all, variant{about: config, config: config, options: handlers.DefaultOptions(), world: selectingWorld})
	}
	return all
}

// TestSelectorConfigurations compares which configurations both sides accept.
func TestSelectorConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "PodNodeSelector", Test: "configurations"}
	f := accepts(t, &row)
	const head = "podNodeSelectorPluginConfig:\n"
	f("", "")
	f("{}", "")
	f(head, "")
	f(head+"  clusterDefaultNodeSelector: ''", "")
	f(head+"  clusterDefaultNodeSelector: a=b, c=d\n  shop: a=b", "")
	f(head+"  shop: null", "")
	f(`{"podNodeSelectorPluginConfig":{"shop":"a=b"}}`, "")
	f(head+"  shop: a", "an invalid selector is an error, in-tree it selects every pod")
	f(head+"  shop: 1", "an unreadable configuration is an error, in-tree it is ignored")
	f("PodNodeSelectorPluginConfig: {shop: a=b}", "fields are spelled as documented")
	f("podNodeSelectorConfig: {shop: a=b}", "an unknown field is an error")
	mustWrite(t, row)
}

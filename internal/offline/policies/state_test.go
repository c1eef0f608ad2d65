package policies

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/cluster"
)

// TestCheckOther reads the state of a cluster with kinds that no plugin reads.
func TestCheckOther(t *testing.T) {
	var s Set
	define := func(kind, plural string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + ".example.com}\n" +
			"spec: {group: example.com, names: {kind: " + kind + ", plural: " + plural + "}, scope: Cluster, versions: [{name: v1}]}\n"
	}
	s.UseParams(parse(define("Given", "givens")), "")
	f := func(content, want string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/a.yaml", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := cluster.New(cluster.Options{Dir: dir, Others: s.CheckOther()})
		if want != "" {
			want = "cluster state: " + dir + "/a.yaml:" + want
		}
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && !strings.HasPrefix(got, want) || err != nil && want == "" {
			t.Errorf("%s: got %v, want %s", content, err, want)
		}
	}
	object := func(version, kind string) string {
		return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: x}\n"
	}
	f(object("v1", "ConfigMap")+"---\n"+object("apps/v1", "Deployment")+"---\n"+object("v1", "SecretList")+"---\n"+
		object("v1", "Config")+"---\n"+object("example.com/v1", "Given")+"---\n"+object("kyverno.io/v1", "ClusterPolicy"), "")
	f("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: ConfigMap}]\n", "")
	f("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: ConfigMop}]\n",
		`1: document 1: items[1]: unknown kind "ConfigMop" of apiVersion "v1", did you mean ConfigMap?`)
	f(object("example.com/v1", "Shed")+"---\n"+define("Shed", "sheds"), "")
	f(object("example.com/v1", "Shed"), `1: document 1: unknown kind "Shed" of apiVersion "example.com/v1"; give its CustomResourceDef`)
	f(object("v1", "ConfigMap")+"---\n"+object("v1", "Namespac"),
		`4: document 2: unknown kind "Namespac" of apiVersion "v1", did you mean Namespace?`)
	f("a: b\n", `1: document 1: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	f(object("v1", "Namespace")+"spec: {foo: 1}\n", `1: document 1: strict decoding error: unknown field "spec.foo"`)
	// Plugins would not see it.
	f(object("scheduling.k8s.io/v1beta1", "PriorityClass"), `1: document 1: got kind "PriorityClass" of apiVersion `+
		`"scheduling.k8s.io/v1beta1", want one of PriorityClass (scheduling.k8s.io/v1), or a list of them`)
}

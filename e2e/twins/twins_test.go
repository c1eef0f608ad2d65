// Package twins sends the same requests to two API servers: one with an admission plugin enabled,
// and one with it disabled and fastadmit's plugin instead. What they store and what they answer
// must be equal.
package twins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/admission"
	known "github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/imagebackend"
	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// twins are two clusters.
type twins struct {
	etcd      *cluster.Etcd
	release   admission.Version // of all API servers
	flags     map[string]string // of all API servers
	admission string            // AdmissionConfiguration for either side
	authority *cluster.Authority
	fastadmit *cluster.Fastadmit
	// off are both, without any of the plugins. Objects that must exist before a test are written
	// through them. The second one gets fastadmit's webhooks.
	off [2]*cluster.APIServer
	// uids are the UIDs that the API servers gave to objects whose UID is in a case.
	uids [2]map[given]string
}

// given identifies an object by the UID in its case and its namespace.
type given struct{ namespace, uid string }

// configurations are the configurations of plugins, for both sides.
var configurations = map[string]string{
	"EventRateLimit": `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration",` +
		`"limits":[{"type":"Namespace","qps":1,"burst":3}]}`,
	"ImagePolicyWebhook": fmt.Sprintf(`{"imagePolicy":{"kubeConfigFile":%q,"retryBackoff":1}}`, imagebackend.Shared().Kubeconfig),
	"PodNodeSelector": `{"podNodeSelectorPluginConfig":{"clusterDefaultNodeSelector":"infra = false",` +
		`"listed":"env=dev, infra=false, color=blue","prd":"env=prd"}}`,
	"PodTolerationRestriction": `{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration",` +
		`"default":[{"key":"testKey","operator":"Equal","value":"cluster","effect":"NoSchedule"}],` +
		`"whitelist":[{"key":"testKey","operator":"Exists","effect":"NoSchedule"},{"key":"a","operator":"Exists"},{"operator":"Exists",` +
		`"effect":"NoExecute"}]}`,
	"PodSecurity": `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",` +
		`"exemptions":{"usernames":["exempt-user"],"namespaces":["exempt"],"runtimeClasses":["exempt"]}}`,
	"ResourceQuota": `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[` +
		`{"resource":"services","matchContains":["services.loadbalancers"]},` +
		`{"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"In","values":["system-cluster-critical"]}]}]}`,
}

// conditions are the match conditions of the plugin's webhook, as in its README.
var conditions = map[string][]admissionregistrationv1.MatchCondition{
	ownersPlugin: {{Name: "owners", Expression: "has(object.metadata) && has(object.metadata.ownerReferences) || " +
		"oldObject != null && has(oldObject.metadata) && has(oldObject.metadata.ownerReferences)"}},
}

// start starts twins of a release, whose API servers also have these flags.
func start(t *testing.T, release admission.Version, flags map[string]string) *twins {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for name, configuration := range configurations {
		content += fmt.Sprintf("- {name: %s, path: %q}\n", name, write(name, configuration))
	}
	tw := &twins{etcd: cluster.StartEtcd(t), release: release, flags: flagsOf(release), admission: write("admission.yaml", content),
		authority: cluster.NewAuthority(t)}
	maps.Copy(tw.flags, flags)
	var names []string
	for _, p := range pluginsOf(release) {
		if p.IsIn(release) {
			names = append(names, p.Name)
		}
	}
	tw.off[0] = tw.etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "a-off", Prefix: "a", Release: release, Flags: tw.flags})
	tw.off[1] = tw.etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "b", Prefix: "b", Release: release, Flags: tw.flags})
	tw.uids = [2]map[given]string{{}, {}}
	tw.fastadmit = cluster.StartFastadmit(t, cluster.Binary, tw.authority, "--kubeconfig", tw.off[1].Kubeconfig(t),
		"--enable-admission-plugins", strings.Join(names, ","), "--admission-control-config-file", tw.admission,
		"--allow-unauthenticated-writes")
	wantRelease(t, tw.fastadmit, release)
	return tw
}

// with returns the clusters with the plugins on, until the test ends.
func (tw *twins) with(t *testing.T, on ...admission.Plugin) [2]*cluster.APIServer {
	t.Helper()
	var names []string
	for i := range on {
		names = append(names, on[i].Name)
	}
	flags := map[string]string{"admission-control-config-file": tw.admission}
	maps.Copy(flags, tw.flags)
	a := tw.etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "a-on", Prefix: "a", On: names, Release: tw.release, Flags: flags})
	return [2]*cluster.APIServer{a, tw.withFastadmit(t, on...)}
}

// withFastadmit returns the second cluster with fastadmit's plugins on, until the test ends.
func (tw *twins) withFastadmit(t *testing.T, on ...admission.Plugin) *cluster.APIServer {
	t.Helper()
	var mutating, validating []cluster.Webhook
	for i := range on {
		p := &on[i]
		hook := cluster.Webhook{CA: tw.authority.PEM, Rules: rules(p.Rules), Conditions: conditions[p.Name], Equivalent: true}
		if p.Mutates {
			hook.URL = tw.fastadmit.URL + "/mutate/" + p.Name
			mutating = append(mutating, hook)
		}
		if p.Validates {
			hook.URL = tw.fastadmit.URL + "/validate/" + p.Name
			validating = append(validating, hook)
		}
	}
	marker := cluster.Webhook{URL: tw.fastadmit.URL, CA: tw.authority.PEM}
	// In this order, because a validating marker would never be reached if the mutating plugin
	// denied.
	if len(validating) > 0 {
		tw.off[1].Validating(t, marker, validating...)
	}
	if len(mutating) > 0 {
		tw.off[1].Mutating(t, marker, mutating...)
	}
	return tw.off[1]
}

// rules returns the plugin's rules for a webhook configuration.
func rules(of []admission.Rule) []admissionregistrationv1.RuleWithOperations {
	var all []admissionregistrationv1.RuleWithOperations
	for _, r := range of {
		all = append(all, r.WithOperations())
	}
	return all
}

// policyPlugins are on in both clusters, and do nothing without policies.
var policyPlugins = []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}

// TestTwins compares every plugin that the release has. It does so in two parts at once, each
// with twins of its own, because most of its time passes in waiting for API servers.
func TestTwins(t *testing.T) {
	t.Parallel()
	const parts = 2
	cluster.EachRelease(t, func(t *testing.T, release admission.Version) {
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				tw := start(t, release, nil)
				for i, p := range pluginsOf(release) {
					if i%parts == part {
						tw.plugin(t, p)
					}
				}
				if part == 0 {
					t.Run("Workloads", tw.workloads)
				} else if release == admission.Newest() { // the tests know the checks of their own release
					t.Run("Standards", tw.standards)
				}
			})
		}
	})
}

// plugin compares one plugin.
func (tw *twins) plugin(t *testing.T, p admission.Plugin) {
	if slices.Contains(slices.Concat(permissionPlugins, policyPlugins, cluster.WebhookPlugins), p.Name) {
		return // see TestPermissions and TestPolicies; without the webhook plugins, an API server calls nobody
	}
	row := tally.Row{Plugin: p.Name, Test: ofRelease("twins", tw.release)}
	switch {
	case p.IsIn(tw.release):
	case tw.release != admission.Newest():
		return
	default:
		row.Skipped = []string{"Kubernetes removed the plugin after " + p.LastRelease}
		mustWrite(t, row)
		return
	}
	t.Run(p.Name, func(t *testing.T) {
		tw.tables(t, p, &row)
		mustWrite(t, row)
	})
}

func mustWrite(t *testing.T, row tally.Row) {
	t.Helper()
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

func (tw *twins) tables(t *testing.T, p admission.Plugin, row *tally.Row) {
	cases, err := tables.Read("../testdata/" + p.Name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if p.Name == "EventRateLimit" {
		cases = append(cases, burst()...)
	}
	cases = tw.served(t, cases)
	groups := alike(cases)
	// A namespace for each case, so that nothing has to be deleted in it.
	for _, i := range slices.Concat(groups...) {
		tw.prepare(t, &cases[i], namespace(p.Name, i))
	}
	for _, same := range groups {
		t.Run(fmt.Sprintf("from %d", same[0]), func(t *testing.T) {
			tw.give(t, shared(&cases[same[0]]))
			on := tw.with(t, p)
			for _, i := range same {
				row.Cases++
				if difference := tw.compare(t, on, [2]*tables.Case{tw.on(t, 0, &cases[i]), tw.on(t, 1, &cases[i])}); difference != "" {
					t.Errorf("%s: %s", cases[i].About, difference)
					row.Different = append(row.Different, cases[i].About)
				}
			}
		})
	}
}

// served returns the cases whose kinds the release serves, in versions that it serves. The newest release serves all.
func (tw *twins) served(t *testing.T, all []tables.Case) (cases []tables.Case) {
	t.Helper()
	for i := range all {
		c := &all[i]
		missing := slices.DeleteFunc(append(c.GivenObjects(), c.Old(), c.New()), func(object *unstructured.Unstructured) bool {
			return object == nil || subject(object) != object || serve(tw.off[0], object)
		})
		if len(missing) > 0 && tw.release != admission.Newest() {
			t.Logf("%s: Kubernetes %s does not serve %s", c.About, tw.release, missing[0].GroupVersionKind().GroupKind())
			continue
		}
		cases = append(cases, *c)
	}
	return cases
}

// alike groups cases that share their given objects. They can share an API server, whose start is
// the slowest part. Without tally.Full, only the largest group remains.
func alike(cases []tables.Case) (all [][]int) {
	for i := range cases {
		first := slices.IndexFunc(all, func(same []int) bool { return reflect.DeepEqual(shared(&cases[same[0]]), shared(&cases[i])) })
		if first < 0 {
			all = append(all, []int{i})
		} else {
			all[first] = append(all[first], i)
		}
	}
	if os.Getenv(tally.Full) == "" {
		all = [][]int{slices.MaxFunc(all, func(a, b []int) int { return cmp.Compare(len(a), len(b)) })}
	}
	return all
}

// shared returns the cluster-scoped objects that the case is given, which other cases can also use.
func shared(c *tables.Case) (all []*unstructured.Unstructured) {
	for _, object := range c.GivenObjects() {
		if !isNamespaced(object) {
			all = append(all, object)
		}
	}
	return all
}

// isNamespaced reports whether a given object is namespaced.
func isNamespaced(object *unstructured.Unstructured) bool {
	return slices.Contains([]string{"LimitRange", "PersistentVolumeClaim", "Pod", "PodGroup", "ResourceQuota", "ServiceAccount",
		"Workload"}, object.GetKind())
}

// give creates the objects until the test ends, and waits until fastadmit has read them. The API
// server with the plugin is started after this.
//
// Objects that say when they were created were created one after the other, on
// both sides alike: the API server sets the time itself, in seconds.
func (tw *twins) give(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for i, s := range tw.off {
		for _, object := range objects {
			if created := object.GetCreationTimestamp(); !created.IsZero() {
				time.Sleep(time.Second)
			}
			if err := tw.create(i, object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				resource, err := s.Resource(object)
				if err == nil {
					err = resource.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	tw.await(t)
}

// await waits until fastadmit has as many objects of each kind as the cluster.
func (tw *twins) await(t *testing.T) {
	t.Helper()
	for _, kind := range known.Kinds() {
		series := fmt.Sprintf("fastadmit_cluster_objects{resource=%q}", kind)
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got, watched := tw.fastadmit.Find(t, series)
			if !watched {
				break
			}
			list, err := tw.off[1].Dynamic.Resource(kind.GroupVersionResource()).List(context.Background(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) { // the release does not serve the kind
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if got == len(list.Items) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("fastadmit knows %d %s, there are %d", got, kind, len(list.Items))
			}
		}
	}
}

// burst returns Events in one namespace, whose limit allows three.
func burst() []tables.Case {
	var cases []tables.Case
	for i := range 6 {
		cases = append(cases, tables.Case{About: fmt.Sprintf("event %d of a burst", i), Object: map[string]any{
			"apiVersion": "v1", "kind": "Event",
			"metadata":       map[string]any{"name": fmt.Sprintf("burst-%d", i), "namespace": "burst"},
			"involvedObject": map[string]any{"kind": "Pod", "name": "p", "namespace": "burst"},
		}})
	}
	return cases
}

func namespace(plugin string, i int) string { return fmt.Sprintf("%s-%d", strings.ToLower(plugin), i) }

// prepare creates the objects that the case needs, on both sides.
func (tw *twins) prepare(t *testing.T, c *tables.Case, namespace string) {
	t.Helper()
	for _, object := range []*unstructured.Unstructured{c.New(), c.Old()} {
		// Events contain their namespace twice, so it is not replaced.
		if object != nil && object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
	}
	for i, s := range tw.off {
		home := c.NewNamespace(c.New().GetNamespace())
		if !c.IsMissing() {
			if err := create(s, home); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { remove(t, s, c.New()) })
		before := c.Old()
		if c.Operation != "" {
			before = c.New()
		}
		if before != nil {
			if err := createWithStatus(s, before); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("%s: %v", c.About, err)
			}
		}
		for _, given := range c.GivenObjects() {
			if !isNamespaced(given) {
				continue
			}
			if given.GetNamespace() == "" {
				given.SetNamespace(c.New().GetNamespace())
			}
			if err := tw.create(i, given); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("%s: %v", c.About, err)
			}
		}
		if c.IsTerminating() { // it stays so, because nobody removes its finalizer
			if err := s.Client.CoreV1().Namespaces().Delete(context.Background(), home.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func create(s *cluster.APIServer, object *unstructured.Unstructured) error {
	resource, err := s.Resource(object)
	if err != nil {
		return err
	}
	_, err = resource.Create(context.Background(), object, metav1.CreateOptions{})
	return err
}

// create creates a copy of a given object on one side, and notes the UID that it gets.
func (tw *twins) create(side int, object *unstructured.Unstructured) error {
	s := tw.off[side]
	if err := createWithStatus(s, object.DeepCopy()); err != nil || object.GetUID() == "" {
		return err
	}
	created, err := read(s, object)
	if err == nil {
		tw.uids[side][given{created.GetNamespace(), string(object.GetUID())}] = string(created.GetUID())
	}
	return err
}

// on returns the case for one side: with the UIDs of that side, and with the fields that the API
// server has set in the old object, because clients send them back.
func (tw *twins) on(t *testing.T, side int, c *tables.Case) *tables.Case {
	t.Helper()
	namespace := c.New().GetNamespace()
	text, err := json.Marshal(c.Object)
	if err != nil {
		t.Fatal(err)
	}
	for given, uid := range tw.uids[side] {
		if given.namespace == "" || given.namespace == namespace {
			text = bytes.ReplaceAll(text, []byte(strconv.Quote(given.uid)), []byte(strconv.Quote(uid)))
		}
	}
	own := *c
	own.Object = nil
	if err := json.Unmarshal(text, &own.Object); err != nil {
		t.Fatal(err)
	}
	if c.Old() != nil {
		before, err := read(tw.off[side], c.Old())
		if err != nil {
			t.Fatal(err)
		}
		own.New().SetUID(before.GetUID())
		own.New().SetCreationTimestamp(before.GetCreationTimestamp())
		own.New().SetResourceVersion(before.GetResourceVersion())
	}
	return &own
}

// remove deletes the object that a case wrote if it is cluster-scoped: nodes would get pods of
// other tests.
func remove(t *testing.T, s *cluster.APIServer, object *unstructured.Unstructured) {
	t.Helper()
	found, err := read(s, object)
	if err != nil || found.GetNamespace() != "" || found.GetKind() == "Namespace" {
		return
	}
	resource, err := s.Resource(object)
	if err == nil {
		err = resource.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// claimDifference is what NodeRestriction's message about a PersistentVolumeClaim says of how two objects differ.
var claimDifference = regexp.MustCompile(`(status\.quantity and status\.conditions: ).*?(","reason")`)

// compare sends the case to both and describes the difference.
func (tw *twins) compare(t *testing.T, on [2]*cluster.APIServer, cases [2]*tables.Case) string {
	t.Helper()
	var results [2]string
	for i, s := range on {
		c, warnings := cases[i], new(cluster.Warnings)
		as := s.WithWarnings(t, warnings)
		if c.User != nil {
			as = as.As(t, c.User.Username, c.User.Groups)
		}
		object, err := write(as, c)
		if about := subject(c.New()); err == nil && about.GetKind() != c.New().GetKind() {
			object = about
		}
		results[i] = strings.Join(*warnings, "\n") + cluster.Shown(object, err, c.New().GetGenerateName())
		if err == nil {
			stored, err := read(s, object)
			results[i] += "\nstored " + cluster.Shown(stored, err, c.New().GetGenerateName())
		}
		results[i] += "\n" + home(s, c)
		if !tw.release.Has("1.34") { // the difference had another format, see docs/versions.md
			results[i] = claimDifference.ReplaceAllString(results[i], "$1$2")
		}
	}
	if results[0] == results[1] {
		return ""
	}
	return fmt.Sprintf("with fastadmit %s\nin-tree %s", results[1], results[0])
}

// home returns the state of the case's namespace, without managed fields, which name its creator.
func home(s *cluster.APIServer, c *tables.Case) string {
	namespace, err := s.Client.CoreV1().Namespaces().Get(context.Background(), c.New().GetNamespace(), metav1.GetOptions{})
	if err != nil {
		return "no namespace: " + err.Error()
	}
	return fmt.Sprintf("namespace %s %v", namespace.Status.Phase, namespace.Labels)
}

// write sends the request of the case.
func write(s *cluster.APIServer, c *tables.Case) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	object := c.New()
	resource, err := s.Resource(subject(object))
	if err != nil {
		return nil, err
	}
	var subresources []string
	if c.Subresource != "" {
		subresources = append(subresources, c.Subresource)
	}
	var dryRun []string
	if c.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch {
	case c.Operation == string(codec.Delete):
		return object, resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), DryRun: dryRun})
	case c.Operation == string(codec.Connect):
		return object, s.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(object.GetNamespace()).
			Name(object.GetName()).SubResource(c.Connection()).Param("stdout", "true").Param("command", "true").Do(ctx).Error()
	case c.Old() != nil:
		return resource.Update(ctx, object, metav1.UpdateOptions{DryRun: dryRun}, subresources...)
	}
	return resource.Create(ctx, object, metav1.CreateOptions{DryRun: dryRun}, subresources...)
}

// subject returns the object to which an object is posted: the pod of an eviction or binding, and
// the service account of a token.
func subject(object *unstructured.Unstructured) *unstructured.Unstructured {
	kind := map[string]string{"Eviction": "Pod", "Binding": "Pod", "TokenRequest": "ServiceAccount"}[object.GetKind()]
	if kind == "" {
		return object
	}
	about := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	about.SetNamespace(object.GetNamespace())
	about.SetName(object.GetName())
	return about
}

func read(s *cluster.APIServer, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := s.Resource(object)
	if err != nil {
		return nil, err
	}
	return resource.Get(context.Background(), object.GetName(), metav1.GetOptions{})
}

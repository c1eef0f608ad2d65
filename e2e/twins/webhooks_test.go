package twins

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/seed"
)

const webhookConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: WebhookAdmissionConfiguration, customResources: true}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: WebhookAdmissionConfiguration, customResources: true}
`

// generatedHooks is how many scenarios are generated.
const generatedHooks = 60

// hookTwins are an API server that calls webhooks, and one that calls fastadmit, which
// calls the same ones.
type hookTwins struct {
	policyTwins
	backend   *hookBackend
	fastadmit *cluster.Fastadmit
}

// TestWebhooks compares kube-apiserver's own calls of webhooks with fastadmit's, which
// gets the same configurations as custom resources.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	cluster.EachRelease(t, compareWebhooks)
}

func compareWebhooks(t *testing.T, release admission.Version) {
	tw := &hookTwins{policyTwins: policyTwins{release: release, groups: webhookGroups, annotations: shownHookAnnotations},
		backend: startHooks(t)}
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	for i, o := range []cluster.APIServerOptions{{Name: "in-tree", Prefix: "a"}, {Name: "with-fastadmit", Prefix: "b"}} {
		o.Release = release
		tw.on[i] = etcd.StartAPIServer(t, o)
		tw.connect(t, i)
	}
	tw.on[1].MustKubectl(t, "", "apply", "-f", "../../deploy/chart/files/webhooks.crds.yaml")
	tw.on[1].AwaitCRDs(t)
	tw.refused(t)
	tw.storeInvalid(t)
	tw.fastadmit = cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", tw.on[1].Kubeconfig(t),
		"--allow-unauthenticated-writes",
		"--admission-control-config-file", cluster.WriteFile(t, "fastadmit.yaml", []byte(webhookConfiguration)),
		"--enable-admission-plugins", strings.Join(append(cluster.WebhookPlugins, "AlwaysDeny"), ","))
	wantRelease(t, tw.fastadmit, release)
	marker, hook := cluster.Webhook{URL: tw.fastadmit.URL, CA: authority.PEM}, hookRules()
	hook.CA = authority.PEM
	hook.URL = tw.fastadmit.URL + "/mutate/MutatingAdmissionWebhook"
	tw.on[1].Mutating(t, marker, hook)
	hook.URL = tw.fastadmit.URL + "/validate/ValidatingAdmissionWebhook"
	tw.on[1].Validating(t, marker, hook)
	t.Run("Compared", tw.compared)
	t.Run("Changed", tw.changed)
	t.Run("Invalid", tw.invalid)
}

// compared sends the requests of the scenarios to both.
func (tw *hookTwins) compared(t *testing.T) {
	g := &hookGenerator{Rand: seed.Rand(t), backend: tw.backend}
	scenarios := hookScenarios(tw.backend)
	for i := range generatedHooks {
		scenarios = append(scenarios, g.scenario(fmt.Sprintf("generated-%d", i)))
	}
	for _, own := range scenarios {
		for _, s := range tw.on {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own.name, Labels: own.NamespaceLabels}}
			if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, own := range scenarios {
		tw.apply(t, own)
	}
	tw.awaitHooks(t)
	row := tally.Row{Plugin: "webhooks", Test: ofRelease("generated twins", tw.release)}
	// One scenario after another, so that the API servers have read the objects of a scenario
	// before: they also send objects from their caches to webhooks, which may be older.
	for i, left := 0, true; left; i++ {
		left = false
		for _, own := range scenarios {
			if i < len(own.Requests) {
				tw.ask(own, &own.Requests[i])
				left = true
			}
		}
	}
	tw.addAnnotations(t)
	for i := range tw.sent {
		sent := &tw.sent[i]
		row.Cases++
		if sent.answers[0] == sent.answers[1] {
			continue
		}
		what := fmt.Sprintf("%s: %s as %s", sent.scenario.name, sent.request.Send, sent.request.As)
		row.Different = append(row.Different, what)
		documents, _ := yaml.Marshal(sent.scenario.Documents)
		shown := strings.ReplaceAll(string(documents), base64.StdEncoding.EncodeToString(tw.backend.caBundle()), "CA")
		t.Errorf("%s\n%s\n%s\nwith fastadmit %s\nin-tree        %s", what, sent.request.Body, shown, sent.answers[1], sent.answers[0])
		for _, digest := range digests.FindAllString(sent.answers[0]+sent.answers[1], -1) {
			object, _ := hookObjects.Load(digest[1:])
			t.Logf("%s is %s", digest, object)
		}
	}
	mustWrite(t, row)
	tw.wantSome(t)
}

// wantSome checks that the requests had each outcome at least once.
func (tw *hookTwins) wantSome(t *testing.T) {
	t.Helper()
	for part, want := range map[string]int{
		"denied the request": 5, "failed calling webhook": 4, "\n{": 100, "careful": 8, `\"mutated\":true`: 20, "round_1": 4,
		"failed-open":               5,
		"context deadline exceeded": 2, "autoscaling/v1": 5,
	} {
		got := 0
		for i := range tw.sent {
			if strings.Contains(tw.sent[i].answers[0], part) {
				got++
			}
		}
		t.Logf("%d answers with %q", got, part)
		if got < want {
			t.Errorf("got %d answers with %q, want %d", got, part, want)
		}
	}
}

// awaitHooks waits until both call the webhooks. They do once they call webhooks of each kind that
// were written last.
func (tw *hookTwins) awaitHooks(t *testing.T) {
	t.Helper()
	last := rand.Text()
	own := &scenario{name: "marker"}
	for _, phase := range []string{"Mutating", "Validating"} {
		h := fixedHook(tw.backend, "default", "warn", strings.ToLower(phase))
		h["objectSelector"] = map[string]any{"matchLabels": map[string]any{"last": last}}
		own.Documents = append(own.Documents, configuration(phase, "zz-marker", h))
	}
	tw.apply(t, own)
	marker := &policyRequest{
		Send: "POST /api/v1/namespaces/default/configmaps?dryRun=All",
		Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"marker","labels":{"last":%q}}}`, last),
	}
	for side := range tw.on {
		cluster.Await(t, "the webhooks", func() error {
			answer, err := tw.send(side, marker, "")
			if err == nil && (!strings.Contains(answer, "careful mutating") || !strings.Contains(answer, "careful validating")) {
				err = fmt.Errorf("got %s", answer)
			}
			return err
		})
	}
}

// shownHookAnnotations returns the annotations of webhooks, with fastadmit's keys.
func shownHookAnnotations(side int, annotations map[string]string) string {
	own := make(map[string]string)
	for key, value := range annotations {
		prefix, name, _ := strings.Cut(key, "/")
		switch {
		case prefix == "authorization.k8s.io" || prefix == "apiserver.latency.k8s.io":
		case side == 0 && strings.HasSuffix(prefix, "webhook.admission.k8s.io"):
			own[strings.TrimSuffix(prefix, "webhook.admission.k8s.io")+name] = value
		case side == 0:
			own[prefix+"."+name] = value
		case prefix != cluster.WebhookName(0): // kube-apiserver's annotations of fastadmit
		case !cluster.IsAttribution(name):
			own[name] = value
		}
	}
	return cluster.Normal(own)
}

// invalidHooks are changes of a valid webhook that kube-apiserver refuses, and the schema too.
var invalidHooks = []string{
	`{"name":"a"}`, `{"name":"A.example.com"}`, `{"name":null}`, `{"sideEffects":null}`, `{"sideEffects":"Some"}`,
	`{"sideEffects":"Unknown"}`,
	`{"admissionReviewVersions":null}`, `{"admissionReviewVersions":[]}`, `{"failurePolicy":"Never"}`, `{"matchPolicy":"Some"}`,
	`{"timeoutSeconds":0}`, `{"timeoutSeconds":31}`, `{"timeoutSeconds":"1"}`, `{"clientConfig":null}`, `{"clientConfig":{}}`,
	`{"clientConfig":{"url":"https://a","service":{"namespace":"a","name":"b"}}}`, `{"clientConfig":{"url":"http://a"}}`,
	`{"clientConfig":{"url":"https://a","caBundle":"not base64"}}`,
	`{"clientConfig":{"service":{"namespace":"","name":"b"}}}`, `{"clientConfig":{"service":{"namespace":"a","name":"b","port":0}}}`,
	`{"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"]}]}`,
	`{"rules":[{"operations":[],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}`,
	`{"rules":[{"operations":["READ"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}`,
	`{"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"All"}]}`,
	`{"objectSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`, `{"matchConditions":[{"name":"a","expression":"true"},` +
		`{"name":"a","expression":"true"}]}`,
	`{"reinvocationPolicy":"Always"}`,
}

// refused checks that the schema refuses what kube-apiserver refuses for its own kinds. No other
// webhook is called here. Next to each invalid value there is a valid one.
func (tw *hookTwins) refused(t *testing.T) {
	t.Helper()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	f := func(change string, want bool) {
		h := fixedHook(tw.backend, "default", "allow", "a")
		var fields map[string]any
		if err := json.Unmarshal([]byte(change), &fields); err != nil {
			t.Fatal(err)
		}
		for name, value := range fields {
			if h[name] = value; value == nil {
				delete(h, name)
			}
		}
		for side, s := range tw.on {
			c := configuration("Mutating", "refused", h)
			c.SetAPIVersion(tw.groups[side])
			resource, err := s.Resource(&c)
			if err == nil {
				_, err = resource.Create(t.Context(), &c, dryRun)
			}
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
				if want {
					t.Errorf("%s: side %d refuses %s: %v", tw.groups[side], side, change, err)
				}
			} else if err != nil || !want {
				t.Errorf("%s: got %v with %s, want it refused", tw.groups[side], err, change)
			}
		}
	}
	for _, change := range invalidHooks {
		f(change, false)
	}
	for _, change := range []string{
		`{}`, `{"rules":null}`, `{"timeoutSeconds":30}`, `{"admissionReviewVersions":["v9","v1beta1"]}`, `{"matchConditions":[]}`,
		`{"clientConfig":{"service":{"namespace":"a","name":"b","path":"/c"}}}`, `{"clientConfig":{"url":"HTTPS://a"}}`,
		`{"reinvocationPolicy":"IfNeeded"}`,
	} {
		f(change, true)
	}
}

// storeInvalid stores webhooks that the schema accepts although they are invalid, before fastadmit
// runs.
func (tw *hookTwins) storeInvalid(t *testing.T) {
	t.Helper()
	good := fixedHook(tw.backend, "stored", "warn", "good")
	bad := fixedHook(tw.backend, "stored", "warn", "bad")
	bad["rules"] = []any{map[string]any{"operations": []any{"CREATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"},
		"resources": []any{"configmaps"}}}
	bad["clientConfig"].(map[string]any)["url"] = "https://example.com/?a=b"
	ignored := fixedHook(tw.backend, "stored-ignored", "warn", "ignored")
	ignored["clientConfig"], ignored["failurePolicy"] = bad["clientConfig"], "Ignore"
	for _, c := range []unstructured.Unstructured{configuration("Validating", "stored", bad, good),
		configuration("Validating", "stored-ignored", ignored)} {
		c.SetAPIVersion(tw.groups[1])
		if err := create(tw.on[1], &c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"stored", "stored-ignored", "changed"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := tw.on[1].Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// tried returns the result of creating a config map in a namespace of the cluster with fastadmit.
func (tw *hookTwins) tried(t *testing.T, namespace, kind string) string {
	t.Helper()
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":"a"}}`, kind)
	answer, err := tw.send(1, &policyRequest{Send: "POST /api/v1/namespaces/" + namespace + "/" + strings.ToLower(kind) + "s?dryRun=All",
		Body: body}, "")
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// ready returns the condition Ready of a configuration.
func (tw *hookTwins) ready(t *testing.T, name string) (status, message string) {
	t.Helper()
	c := configuration("Validating", name)
	c.SetAPIVersion(tw.groups[1])
	found, err := read(tw.on[1], &c)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			ObservedGeneration int64
			Conditions         []metav1.Condition
		}
	}
	text, err := found.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == "Ready" && object.Status.ObservedGeneration == object.Metadata.Generation {
			return string(condition.Status), condition.Message
		}
	}
	return "", string(text)
}

func (tw *hookTwins) awaitReady(t *testing.T, name, want, says string) {
	t.Helper()
	cluster.Await(t, "the status of "+name, func() error {
		if got, message := tw.ready(t, name); got != want || !strings.Contains(message, says) {
			return fmt.Errorf("got %q and %s, want %s and %s", got, message, want, says)
		}
		return nil
	})
}

func (tw *hookTwins) awaitTried(t *testing.T, namespace, want string, there bool) {
	t.Helper()
	cluster.Await(t, "what comes of config maps", func() error {
		if got := tw.tried(t, namespace, "ConfigMap"); strings.Contains(got, want) != there {
			return fmt.Errorf("got %s, want %s there: %v", got, want, there)
		}
		return nil
	})
}

// changed lets fastadmit call a webhook of a custom resource, then another one after a change, and
// none after the deletion.
func (tw *hookTwins) changed(t *testing.T) {
	c := configuration("Validating", "changed", fixedHook(tw.backend, "changed", "warn", "one"))
	c.SetAPIVersion(tw.groups[1])
	resource, err := tw.on[1].Resource(&c)
	if err == nil {
		_, err = resource.Create(t.Context(), &c, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	tw.awaitTried(t, "changed", "careful one", true)
	tw.awaitReady(t, "changed", "True", "its webhooks are called")
	two := configuration("Validating", "changed", fixedHook(tw.backend, "changed", "warn", "two"))
	patch, _ := json.Marshal(map[string]any{"webhooks": two.Object["webhooks"]})
	if err := tw.patch(&c, patch); err != nil {
		t.Fatal(err)
	}
	tw.awaitTried(t, "changed", "careful two", true)
	tw.awaitReady(t, "changed", "True", "its webhooks are called")
	err = tw.patch(&c, []byte(`{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],`+
		`"clientConfig":{"url":"https://a"},`+
		`"matchConditions":[{"name":"a","expression":"object."}]}]}`))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Syntax error") {
		t.Errorf("got %v, want an expression that does not compile to be refused", err)
	}
	if err := resource.Delete(t.Context(), "changed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	tw.awaitTried(t, "changed", "careful", false)
}

func (tw *hookTwins) patch(c *unstructured.Unstructured, patch []byte) error {
	resource, err := tw.on[1].Resource(c)
	if err == nil {
		_, err = resource.Patch(context.Background(), c.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{})
	}
	return err
}

// invalid checks the effect of stored webhooks that are not valid.
func (tw *hookTwins) invalid(t *testing.T) {
	const series = `fastadmit_webhook_configurations_invalid{plugin="ValidatingAdmissionWebhook"}`
	if got := tw.fastadmit.Metric(t, series); got != 2 {
		t.Errorf("got %d with %s, want 2", got, series)
	}
	tw.awaitReady(t, "stored", "False", "webhooks[0].clientConfig.url")
	tw.awaitReady(t, "stored-ignored", "False", "webhooks[0].clientConfig.url")
	tw.awaitTried(t, "stored", `failed calling webhook \"bad.hooks.example.com\": it is not valid`, true)
	if got := tw.tried(t, "stored", "Secret"); !strings.HasPrefix(got, "201 Created") || !strings.Contains(got, "careful good") {
		t.Errorf("got %s, want what the rules do not select to be let through, and the other webhook to be called", got)
	}
	if got := tw.tried(t, "stored-ignored", "ConfigMap"); !strings.HasPrefix(got, "201 Created") {
		t.Errorf("got %s, want the failure ignored", got)
	}
	// Objects that nobody can create can still be labelled and deleted.
	c := configuration("Validating", "stored")
	c.SetAPIVersion(tw.groups[1])
	if err := tw.patch(&c, []byte(`{"metadata":{"labels":{"a":"b"}}}`)); err != nil {
		t.Error(err)
	}
	resource, err := tw.on[1].Resource(&c)
	if err == nil {
		err = resource.Delete(t.Context(), "stored", metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	tw.awaitTried(t, "stored", "it is not valid", false)
	cluster.Await(t, "the metric", func() error {
		if got := tw.fastadmit.Metric(t, series); got != 1 {
			return fmt.Errorf("got %d", got)
		}
		return nil
	})
}

package admission_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// workloadBody returns an AdmissionReview for a write to a workload. old is empty for a creation.
func workloadBody(apiVersion, kind, resource, object, old string) []byte {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	operation := codec.Update
	if old == "" {
		operation, old = codec.Create, "null"
	}
	of := `{"group":"` + gvk.Group + `","version":"` + gvk.Version + `",`
	head := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `",`
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":` + of + `"kind":"` + kind +
		`"},"resource":` + of + `"resource":"` + resource + `"},"name":"web","namespace":"shop","operation":"` + string(operation) +
		`","userInfo":{"username":"ann"},"object":` + strings.Replace(object, "{", head, 1) +
		`,"oldObject":` + strings.Replace(old, "{", head, 1) + `,"dryRun":false}}`)
}

// workloadReview returns the review of a write to a workload, which is released when the test ends.
func workloadReview(t *testing.T, apiVersion, kind, resource, object, old string) *codec.Review {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode(workloadBody(apiVersion, kind, resource, object, old)); err != nil {
		t.Fatal(err)
	}
	return review
}

// podsOnly makes a plugin ignore everything but the creation of Pods.
func podsOnly(p admission.Plugin) admission.Plugin {
	p.Rules = []admission.Rule{admission.CreateUpdate("pods")}
	return p
}

// denyHostPID denies Pods with hostPID, and warns of others by their user.
func denyHostPID(_ context.Context, review *codec.Review) admission.Result {
	if review.Object.Get("spec", "hostPID").Bool() {
		path := field.NewPath("spec", "hostPID")
		errs := field.ErrorList{field.Forbidden(path, "no"), field.Required(field.NewPath("metadata", "labels").Key("team"), "who?")}
		name := review.Object.Get("metadata", "generateName").String()
		return admission.Denied(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, errs))
	}
	review.Response.Warn(review.Username() + " in " + review.Namespace() + " with " + review.Object.Get("metadata", "labels").JSON())
	return admission.Allowed()
}

const (
	badTemplate  = `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"hostPID":true}}`
	goodTemplate = `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[]}}`
	badMessage   = `Host: Pods of deployments.apps "web" would be denied: Pod "web-7cbc6f5494-" is invalid: [spec.template.spec.hostPID: ` +
		`Forbidden: no, spec.template.metadata.labels[team]: Required value: who?]`
)

func object(spec string) string {
	return `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + spec + `}}`
}

func TestWorkloadPods(t *testing.T) {
	f := func(settings admission.Settings, apiVersion, kind, object, old string, outcome admission.Outcome, want ...string) {
		t.Helper()
		settings.PodTemplatePaths = workload.Paths{"rollouts.argoproj.io": ".spec.pods.template"}
		chain := mustSet(t, map[string]admission.Settings{"Host": settings}, podsOnly(validating("Host", denyHostPID)))
		review := workloadReview(t, apiVersion, kind, strings.ToLower(kind)+"s", object, old)
		got, err := chain.Review(t.Context(), review, admission.Validate)
		texts := slices.Clone(review.Response.Warnings())
		if !review.Response.Allowed && err == nil {
			texts = append(texts, review.Response.Status.Message)
		}
		if got != outcome || err != nil || !slices.Equal(texts, want) {
			t.Errorf("%s %s: got %v, %v, %q, want %v, %q", kind, object, got, err, texts, outcome, want)
		}
	}
	deny := admission.Settings{WorkloadPods: admission.WorkloadPodsDeny}
	warn := admission.Settings{WorkloadPods: admission.WorkloadPodsWarn}
	bad, good := object(badTemplate), object(goodTemplate)
	f(admission.Settings{}, "apps/v1", "Deployment", bad, "", admission.OutcomeAllowed)
	f(admission.Settings{WorkloadPods: admission.WorkloadPodsOff}, "apps/v1", "Deployment", bad, "", admission.OutcomeAllowed)
	f(deny, "apps/v1", "Deployment", bad, "", admission.OutcomeDenied, badMessage)
	f(warn, "apps/v1", "Deployment", bad, "", admission.OutcomeAllowed, badMessage)
	enforced := deny
	enforced.Enforcement = []admission.Enforcement{{Action: admission.ActionWarn}}
	f(enforced, "apps/v1", "Deployment", bad, "", admission.OutcomeAllowed, badMessage)
	enforced.Enforcement = []admission.Enforcement{{Action: admission.ActionAudit}}
	f(enforced, "apps/v1", "Deployment", bad, "", admission.OutcomeAllowed)
	f(deny, "apps/v1", "Deployment", good, "", admission.OutcomeAllowed,
		`Pods of deployments.apps "web": system:serviceaccount:kube-system:replicaset-controller in shop with `+
			`{"app":"web","pod-template-hash":"5c49f8f845"}`)
	// Only a new template is reviewed, whatever else changes.
	f(deny, "apps/v1", "Deployment", object(`"replicas":3,`+badTemplate), bad, admission.OutcomeAllowed)
	f(deny, "apps/v1", "Deployment", bad, good, admission.OutcomeDenied, badMessage)
	// A Pod of nobody, and one of somebody unknown, are the user's.
	const anns = "ann in shop with {\"app\":\"web\"}"
	f(deny, "v1", "PodTemplate", `{"metadata":{"name":"web","namespace":"shop"},`+goodTemplate+`}`, "", admission.OutcomeAllowed,
		`Pods of podtemplates "web": `+anns)
	f(deny, "argoproj.io/v1", "Rollout", object(`"pods":{`+goodTemplate+`}`), "", admission.OutcomeAllowed,
		`Pods of rollouts.argoproj.io "web": `+anns)
	f(deny, "argoproj.io/v1", "Rollout", object(`"workloadRef":{}`), "", admission.OutcomeAllowed)
	f(deny, "argoproj.io/v1", "Rollout", object(`"pods":{"template":{"metadata":{"labels":1}}}`), "", admission.OutcomeAllowed,
		"cannot make the pods of the Rollout: json: cannot unmarshal number into Go struct field metadata.metadata.labels of type "+
			"map[string]string, so nothing checked them")
	// The paths are those of each kind.
	const at = `Host: Pods of cronjobs.batch "web" would be denied: Pod "web-29000000-" is invalid: [` +
		`spec.jobTemplate.spec.template.spec.hostPID: Forbidden: no, ` +
		`spec.jobTemplate.spec.template.metadata.labels[team]: Required value: who?]`
	f(deny, "batch/v1", "CronJob", object(`"jobTemplate":{"spec":{`+badTemplate+`}}`), "", admission.OutcomeDenied, at)
	// What a controller makes of another workload was reviewed with that.
	owned := func(kind string) string {
		owner := `"ownerReferences":[{"apiVersion":"apps/v1","kind":"` + kind + `","controller":true}],`
		return strings.Replace(bad, `"metadata":{`, `"metadata":{`+owner, 1)
	}
	f(deny, "apps/v1", "ReplicaSet", owned("Deployment"), "", admission.OutcomeAllowed)
	f(deny, "apps/v1", "ReplicaSet", owned("Rollout"), "", admission.OutcomeDenied,
		strings.NewReplacer("deployments", "replicasets", "web-7cbc6f5494-", "web-").Replace(badMessage))
	// Others are no workloads.
	f(deny, "v1", "Service", bad, "", admission.OutcomeAllowed)
}

// TestWorkloadPodsDetails tests the status of a denial, for programs.
func TestWorkloadPodsDetails(t *testing.T) {
	chain := mustSet(t, map[string]admission.Settings{"Host": {WorkloadPods: admission.WorkloadPodsDeny}},
		podsOnly(validating("Host", denyHostPID)))
	review := workloadReview(t, "apps/v1", "StatefulSet", "statefulsets", object(badTemplate), "")
	if _, err := chain.Review(t.Context(), review, admission.Validate); err != nil {
		t.Fatal(err)
	}
	status := review.Response.Status
	d := status.Details
	if status.Code != 422 || status.Reason != string(metav1.StatusReasonInvalid) ||
		d.Name != "web" || d.Group != "apps" || d.Kind != "statefulsets" ||
		len(d.Causes) != 2 || d.Causes[0].Field != "spec.template.spec.hostPID" ||
		d.Causes[1].Field != "spec.template.metadata.labels[team]" {
		t.Errorf("got %+v", status)
	}
}

// TestWorkloadPodsAreMutated tests that plugins that change Pods change this one before it is validated, whether or not
// they check workloads, and that the workload stays as it is.
func TestWorkloadPodsAreMutated(t *testing.T) {
	deny := admission.Settings{WorkloadPods: admission.WorkloadPodsDeny}
	f := func(
		first act, settings map[string]admission.Settings, keep func(*admission.Plugin) bool, outcome admission.Outcome, want string,
	) {
		t.Helper()
		both := mutating("First", first)
		both.Validates = true
		both.New = func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: first, Validate: allow}, nil
		}
		chain := mustSet(t, settings, podsOnly(both), podsOnly(validating("Host", denyHostPID)))
		chain = chain.Select(func(p *admission.Plugin, _ *admission.Settings) bool { return keep(p) })
		review := workloadReview(t, "apps/v1", "ReplicaSet", "replicasets", object(badTemplate), "")
		got, err := chain.Review(t.Context(), review, admission.Validate)
		text := strings.Join(review.Response.Warnings(), "|") + review.Response.Status.Message
		if err != nil {
			text = err.Error()
		}
		if got != outcome || text != want || review.Object.Changes() > 0 {
			t.Errorf("got %v, %q, want %v, %q", got, text, outcome, want)
		}
	}
	hide := func(review *codec.Review) { review.Object.SetBool(false, "spec", "hostPID") }
	repair := func(_ context.Context, review *codec.Review) admission.Result {
		hide(review)
		return admission.Allowed()
	}
	refuse := func(_ context.Context, review *codec.Review) admission.Result {
		hide(review)
		return admission.Denied(errors.New("spec: no"))
	}
	fail := func(_ context.Context, review *codec.Review) admission.Result {
		hide(review)
		return admission.Errored(errors.New("broken"))
	}
	every := func(*admission.Plugin) bool { return true }
	onlyHost := func(p *admission.Plugin) bool { return p.Name == "Host" }
	const repaired = `Pods of replicasets.apps "web": system:serviceaccount:kube-system:replicaset-controller in shop with ` +
		`{"app":"web"}`
	denied := strings.NewReplacer("deployments", "replicasets", "web-7cbc6f5494-", "web-").Replace(badMessage)
	host := map[string]admission.Settings{"Host": deny}
	f(repair, host, every, admission.OutcomeAllowed, repaired)
	f(repair, host, onlyHost, admission.OutcomeAllowed, repaired)
	f(refuse, host, every, admission.OutcomeDenied, denied) // the other one is off, and its change undone
	f(fail, host, every, admission.OutcomeDenied, denied)
	f(refuse, map[string]admission.Settings{"First": deny, "Host": deny}, every, admission.OutcomeDenied,
		`First: Pods of replicasets.apps "web" would be denied: spec.template.spec: no`)
	f(refuse, map[string]admission.Settings{"First": deny, "Host": deny}, onlyHost, admission.OutcomeDenied, denied)
	f(fail, map[string]admission.Settings{"First": deny}, every, admission.OutcomeErrored, "admission plugin First failed: broken")
	ignored := admission.Settings{WorkloadPods: admission.WorkloadPodsDeny, FailurePolicy: admissionregistrationv1.Ignore}
	f(fail, map[string]admission.Settings{"First": ignored}, every, admission.OutcomeAllowed, "")
	f(fail, map[string]admission.Settings{"First": {WorkloadPods: admission.WorkloadPodsWarn}}, every, admission.OutcomeAllowed,
		`Pods of replicasets.apps "web" could not be checked: admission plugin First failed: broken`)
}

func TestWorkloadPodsRefused(t *testing.T) {
	f := func(value admission.WorkloadPods, plugin admission.Plugin, want string) {
		t.Helper()
		enabled := map[string]admission.Enabled{plugin.Name: {Settings: admission.Settings{WorkloadPods: value}}}
		_, err := admission.NewChain([]admission.Plugin{plugin}, enabled, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	writes := validating("A", allow)
	writes.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	services := validating("A", allow)
	services.Rules = []admission.Rule{admission.CreateUpdate("services")}
	f("audit", validating("A", allow), `workloadPods: got "audit", want off, warn or deny`)
	f(admission.WorkloadPodsDeny, writes, "workloadPods: got deny, want off: the plugin writes or remembers something")
	const noPods = "workloadPods: got warn, want off: the plugin does not validate the creation of Pods"
	f(admission.WorkloadPodsWarn, services, noPods)
	f(admission.WorkloadPodsWarn, mutating("A", allow), noPods)
}

// TestWorkloadPodsExplained tests that the call for the Pod is explained, and observed as one of the plugin.
func TestWorkloadPodsExplained(t *testing.T) {
	chain := mustSet(t, map[string]admission.Settings{"Host": {WorkloadPods: admission.WorkloadPodsWarn}},
		podsOnly(validating("Host", denyHostPID)))
	var all []*admission.Explanation
	var runs []admission.Outcome
	chain.Explain = func(x *admission.Explanation) { all = append(all, x) }
	chain.Observe = func(run admission.Run) { runs = append(runs, run.Outcome) }
	review := workloadReview(t, "apps/v1", "Deployment", "deployments", object(badTemplate), "")
	if _, err := chain.Review(t.Context(), review, admission.Validate); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(runs, []admission.Outcome{admission.OutcomeWarned}) {
		t.Errorf("got runs %v, want warned", runs)
	}
	if len(all) != 2 || all[0].Asked || !all[1].Asked || all[1].Why != "workloadPods is warn, and this is the Pod of the workload" ||
		all[1].Outcome != "denied" || !strings.Contains(all[1].Message, "spec.hostPID: Forbidden") {
		t.Errorf("got %+v", all)
	}
}

// BenchmarkWorkloadPods measures what the setting costs a Deployment with a new template, and one that is scaled, besides
// the time of the plugins.
func BenchmarkWorkloadPods(b *testing.B) {
	for _, benchmark := range []struct {
		name     string
		value    admission.WorkloadPods
		isScaled bool
	}{
		{"off", admission.WorkloadPodsOff, false}, {"new template", admission.WorkloadPodsDeny, false},
		{"scaled", admission.WorkloadPodsDeny, true},
	} {
		b.Run(benchmark.name, func(b *testing.B) {
			plugin := podsOnly(validating("Host", allow))
			chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{"Host": {Settings: admission.Settings{
				WorkloadPods: benchmark.value,
			}}}, nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			const container = `,{"name":"a","image":"nginx:1.29","args":["--a","--b"],"resources":{"limits":{"cpu":"1"}}}`
			template := `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[` + strings.Repeat(container, 20)[1:] + `]}}`
			old := ""
			if benchmark.isScaled {
				old = object(template)
			}
			body := workloadBody("apps/v1", "Deployment", "deployments", object(`"replicas":2,`+template), old)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				review := codec.Acquire()
				if err := review.Decode(body); err != nil {
					b.Fatal(err)
				}
				outcome, err := chain.Review(b.Context(), review, admission.Validate)
				if outcome != admission.OutcomeAllowed || err != nil {
					b.Fatal(outcome, err)
				}
				review.Release()
			}
		})
	}
}

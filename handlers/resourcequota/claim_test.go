package resourcequota

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestClaimUsage has the devices that a claim can get, and their extended resources.
func TestClaimUsage(t *testing.T) {
	d := devicesOf(t, deviceClass("gpu", ""), deviceClass("card", "example.com/card"))
	const one = "count/resourceclaims.resource.k8s.io=1"
	counted := func(class, n string) string {
		return one + fmt.Sprintf(",%s.deviceclass.resource.k8s.io/devices=%s,requests.deviceclass.resource.kubernetes.io/%s=%s",
			class, n, class, n)
	}
	f := func(requests, want string) {
		t.Helper()
		uses(t, d, `{"spec":{"devices":{"requests":[`+requests+`]}}}`, want)
	}
	f(``, one)
	f(`{"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}}`, counted("gpu", "2"))
	f(`{"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}},{"exactly":{"deviceClassName":"gpu",`+
		`"allocationMode":"ExactCount","count":3}}`, counted("gpu", "5"))
	f(`{"exactly":{"deviceClassName":"gpu","allocationMode":"All"}}`, counted("gpu", "32"))
	f(`{"exactly":{"deviceClassName":"gpu","allocationMode":"Later","count":2}}`, one+",gpu.deviceclass.resource.k8s.io/devices=0")
	f(`{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}`, counted("gpu", "2"))
	f(`{"firstAvailable":[{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2},{"deviceClassName":"gpu",`+
		`"allocationMode":"ExactCount","count":1}]}`, counted("gpu", "2"))
	f(`{"firstAvailable":[{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}]}`, counted("gpu", "2"))
	f(`{"firstAvailable":[],"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1}}`, counted("gpu", "1"))
	f(`{"exactly":{"deviceClassName":"card","allocationMode":"ExactCount","count":2}}`,
		counted("card", "2")+",requests.example.com/card=2")
	f(`{"exactly":{"deviceClassName":"unknown","allocationMode":"ExactCount","count":1}}`, counted("unknown", "1"))
	f(`{"exactly":{"allocationMode":"ExactCount","count":1}}`, one+",.deviceclass.resource.k8s.io/devices=1")
	f(`{}`, one)

	unnamed := deviceClass("gpu", "").(*resourcev1.DeviceClass)
	unnamed.Spec.ExtendedResourceName = new("")
	d = devicesOf(t, unnamed)
	f(`{"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1}}`, counted("gpu", "1"))
}

// TestClaimVersions has a claim of a class with an extended resource, which counts as such since Kubernetes
// v1.36 (k8s.io/kubernetes pkg/features/kube_features.go DRAExtendedResource).
func TestClaimVersions(t *testing.T) {
	const (
		claim  = `{"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"card","allocationMode":"ExactCount","count":2}}]}}}`
		before = "count/resourceclaims.resource.k8s.io=1,card.deviceclass.resource.k8s.io/devices=2"
		since  = before + ",requests.deviceclass.resource.kubernetes.io/card=2,requests.example.com/card=2"
	)
	extended := resourcesNamed("requests.example.com/card")
	f := func(version, want string, tracked int) {
		t.Helper()
		d := devicesOf(t, deviceClass("card", "example.com/card"))
		var err error
		if d.version, _, err = admission.ParseVersion(version); err != nil {
			t.Fatal(err)
		}
		uses(t, d, claim, want)
		if got := d.tracked(extended); len(got) != tracked {
			t.Errorf("%s: got the quotas of %s, want %d", version, got, tracked)
		}
	}
	f("1.34", before, 0)
	f("1.35", before, 0)
	f("1.36", since, 1)
}

// TestClaimUnknown has an API server that does not return the claim's owner: the plugin
// fails.
func TestClaimUnknown(t *testing.T) {
	for _, broken := range []string{"pods", "resourceclaims", ""} {
		var asked []string
		handler := admissiontest.LiveHandler(t, limiting(), func(w http.ResponseWriter, r *http.Request) {
			parts := strings.Split(r.URL.Path, "/") // .../namespaces/N/RESOURCE/...
			resource := parts[slices.Index(parts, home)+1]
			switch asked = append(asked, resource); resource {
			case broken:
				admissiontest.Failure(w, http.StatusForbidden, "Forbidden")
			case "pods":
				fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"namespace","uid":"7"}}`)
			default:
				fmt.Fprint(w, `{"kind":"ResourceClaimList","apiVersion":"resource.k8s.io/v1","items":[]}`)
			}
		})
		review := decoded(t, admissiontest.Body(codec.Create, "resource.k8s.io/v1/resourceclaims", `{"metadata":{"name":"m",`+
			`"annotations":{"resource.kubernetes.io/extended-resource-claim":"true"},`+
			`"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"web","uid":"7","controller":true}]}}`))
		if result := handler.Validate(t.Context(), review); (result.Err != nil) != (broken != "") || result.Denial != nil {
			t.Errorf("without an answer about %q: got %+v, asked about %v", broken, result, asked)
		}
	}
}

// limiting returns the plugin with a limit, so that it also checks namespaces without a
// quota.
func limiting() admission.Plugin {
	p := Plugin()
	p.New = func(setup admission.Setup) (admission.Handler, error) {
		setup.Config = []byte(head + "limitedResources: [{resource: secrets, matchContains: [secrets]}]")
		return newHandler(setup)
	}
	return p
}

// TestClaimOfPod has claims that the scheduler made for the extended resources of a Pod. The
// first of them does not count resources again that are counted for the Pod.
func TestClaimOfPod(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	claim := func(name string, created time.Time, uid types.UID) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: home, CreationTimestamp: metav1.NewTime(created),
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uid, Controller: new(true)}},
		}}
	}
	pod := func(claim string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: home, UID: "7"}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"example.com/card": resource.MustParse("2")},
			Limits:   corev1.ResourceList{"example.com/card": resource.MustParse("2")},
		}}}
		if claim != "" {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim}
		}
		return p
	}
	const owner = `{"apiVersion":"v1","kind":"Pod","name":"web","uid":"7","controller":true}`
	f := func(what, annotation, created, owner string, again bool, objects ...runtime.Object) {
		t.Helper()
		d := devicesOf(t, append(objects, deviceClass("card", "example.com/card"))...)
		object := fmt.Sprintf(`{"metadata":{"name":"m",`+
			`"annotations":{"resource.kubernetes.io/extended-resource-claim":%q}%s,"ownerReferences":[%s]},`+
			`"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"card","allocationMode":"ExactCount","count":2}}]}}}`,
			annotation, created, owner)
		used := measured(t, d, object).usage()
		if _, got := used["requests.example.com/card"]; got != again {
			t.Errorf("%s: got %s, want it counted again: %v", what, show(used), again)
		}
		if _, devices := used["card.deviceclass.resource.k8s.io/devices"]; !devices {
			t.Errorf("%s: got no devices: %s", what, show(used))
		}
	}
	const created = `,"creationTimestamp":"2026-01-01T00:00:00Z"`
	f("its own", "true", created, owner, false, pod("m"))
	f("another's", "true", created, owner, true, pod("other"))
	f("no Pod", "true", created, owner, true)
	f("no annotation", "false", created, owner, true, pod("m"))
	f("no owner", "true", created, ``, true, pod("m"))
	f("no controller", "true", created, `{"apiVersion":"v1","kind":"Pod","name":"web","uid":"7"}`, true, pod("m"))
	f("another kind", "true", created, `{"apiVersion":"v1","kind":"Job","name":"web","uid":"7","controller":true}`, true, pod("m"))
	f("another version", "true", created, `{"apiVersion":"v2","kind":"Pod","name":"web","uid":"7","controller":true}`, true, pod("m"))
	f("another Pod of the name", "true", created, `{"apiVersion":"v1","kind":"Pod","name":"web","uid":"8","controller":true}`,
		true, pod("m"))
	f("an impossible name", "true", created, `{"apiVersion":"v1","kind":"Pod","name":"..","uid":"7","controller":true}`, true, pod("m"))

	f("the only one", "true", created, owner, false, pod(""))
	f("the first one", "true", created, owner, false, pod(""), claim("a", at.Add(time.Second), "7"))
	f("the second one", "true", created, owner, true, pod(""), claim("z", at.Add(-time.Second), "7"))
	f("at the same time, before", "true", created, owner, false, pod(""), claim("z", at, "7"))
	f("at the same time, behind", "true", created, owner, true, pod(""), claim("a", at, "7"))
	f("itself", "true", created, owner, false, pod(""), claim("m", at, "7"))
	f("of another Pod", "true", created, owner, false, pod(""), claim("a", at.Add(-time.Second), "8"))
	ownerless := claim("a", at.Add(-time.Second), "7")
	ownerless.OwnerReferences = nil
	f("of nobody", "true", created, owner, false, pod(""), ownerless)

	odd := decoded(t, admissiontest.Body(codec.Create, "v1/any", `{"metadata":{"creationTimestamp":"soon"}}`))
	if i, err := devicesOf(t).measure(t.Context(), odd, odd.Object.Root()); err == nil {
		t.Errorf("a time that is none: got %v", i)
	}
}

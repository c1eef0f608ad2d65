package noderestriction

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
)

// token returns a request for a token for the audience, bound to the object.
func token(audience, bound string) []byte {
	return body(fmt.Sprintf(`"resource":{"group":"","version":"v1","resource":"serviceaccounts"},"subResource":"token",`+
		`"name":"web","operation":"CREATE",`+
		`"object":{"spec":{"audiences":[%q],"boundObjectRef":%s}}`, audience, bound))
}

const boundToWeb = `{"apiVersion":"v1","kind":"Pod","name":"web","uid":"u2"}`

// claimed returns a claim and its bound volume.
func claimed(name, volume string, source corev1.PersistentVolumeSource, labels map[string]string) []runtime.Object {
	return []runtime.Object{
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume, Labels: labels},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}},
	}
}

// TestVolumes has volumes by which a pod requests tokens: those that project one, those
// whose CSI driver requests them, and in-tree volumes that are migrated to such a driver.
func TestVolumes(t *testing.T) {
	asks := []storagev1.TokenRequest{{Audience: "other"}, {Audience: "vault"}}
	state := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{TokenRequests: asks}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "ebs.csi.aws.com"}, Spec: storagev1.CSIDriverSpec{TokenRequests: asks}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lost"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "gone"}},
	}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com"}}
	state = append(state, claimed("web-v", "pv1", csi, nil)...)
	state = append(state, claimed("csi", "pv2", csi, nil)...)
	state = append(state, claimed("ebs", "pv3", corev1.PersistentVolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}, nil)...)
	state = append(state, claimed("host", "pv4",
		corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}, nil)...)
	state = append(state, claimed("zones", "pv5", corev1.PersistentVolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}, map[string]string{corev1.LabelTopologyZone: "a__b"})...)

	const passed = "passed"
	f := func(audience, want string, sources ...corev1.VolumeSource) {
		t.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u2"}, Spec: corev1.PodSpec{NodeName: "n1"}}
		for _, source := range sources {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		}
		chain := chainWith(t, func(context.Context, *authorizationv1.SubjectAccessReview) {},
			append(state[:len(state):len(state)], pod)...)
		if want == passed {
			admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, token(audience, boundToWeb))
		} else if got := message(t, chain, token(audience, boundToWeb)); !strings.Contains(got, want) {
			t.Errorf("%v: got %s, want %s", sources, got, want)
		}
	}
	const no = `is not authorized to request tokens for audience \"vault\"`
	hostPath := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	driver := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name}}
	}
	f("vault", no)
	f("vault", no, hostPath)
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}},
	}}}
	f("vault", passed, hostPath, projected)
	f("else", `to request tokens for audience \"else\"`, projected)
	f("", `to request tokens for audience \"\"`, projected)

	f("vault", passed, hostPath, driver("csi.example.com"))
	f("else", `to request tokens for audience \"else\"`, driver("csi.example.com"))
	f("vault", `error validating audience \"vault\": csidriver.storage.k8s.io \"unknown\" not found`, driver("unknown"))
	f("vault", passed, driver("unknown"), driver("csi.example.com")) // one that requests the audience is enough

	template := &corev1.PersistentVolumeClaimTemplate{}
	f("vault", passed, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}})
	f("vault", no, corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	f("vault", passed, claim("csi"))
	f("vault", `persistentvolumeclaim \"none\" not found`, claim("none"))
	f("vault", `persistentvolume \"gone\" not found`, claim("lost"))
	f("vault", `[persistentvolumeclaim \"none\" not found, persistentvolume \"gone\" not found]`, claim("none"), hostPath, claim("lost"))

	// In-tree volumes that a CSI driver mounts.
	f("vault", passed, claim("ebs"))
	f("vault", no, claim("host"))
	f("vault", `error validating audience \"vault\": failed to get region from zones`, claim("zones"))
	f("vault", passed, corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})
}

// TestBoundObject checks which object a token must be bound to.
func TestBoundObject(t *testing.T) {
	chain := chainWith(t, func(_ context.Context, review *authorizationv1.SubjectAccessReview) { review.Status.Allowed = true },
		objects()...)
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, token("vault", boundToWeb))
	for bound, want := range map[string]string{
		`null`: "not bound to a pod",
		`{"apiVersion":"v2","kind":"Pod","name":"web","uid":"u2"}`:    "not bound to a pod",
		`{"apiVersion":"v1","kind":"Secret","name":"web","uid":"u2"}`: "not bound to a pod",
		`{"apiVersion":"v1","kind":"Pod","name":"","uid":"u2"}`:       "not bound to a pod",
		`{"apiVersion":"v1","kind":"Pod","name":"web"}`:               "with a pod binding without a uid",
		`{"apiVersion":"v1","kind":"Pod","name":"web","uid":"u1"}`:    "does not match the UID in record",
	} {
		if got := message(t, chain, token("vault", bound)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", bound, got, want)
		}
	}
}

// TestUnreadableUser has a user whose fields cannot be read, so the API server is not asked.
func TestUnreadableUser(t *testing.T) {
	chain := chainWith(t, func(context.Context, *authorizationv1.SubjectAccessReview) {
		t.Error("got an access review for an unreadable user")
	}, objects()...)
	text := strings.Replace(string(token("vault", boundToWeb)), `"groups":`, `"extra":5,"groups":`, 1)
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, []byte(text))
}

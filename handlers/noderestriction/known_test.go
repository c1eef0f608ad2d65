package noderestriction

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/internal/seed"
)

func TestTrimVolumes(t *testing.T) {
	f := func(volumes, want []corev1.Volume) {
		t.Helper()
		if got := trimVolumes(volumes); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %v, want %v", volumes, got, want)
		}
	}
	volume := func(source corev1.VolumeSource) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: source}}
	}
	token := func(audience string) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience,
			Path: "token", ExpirationSeconds: new(int64(60))}}
	}
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(1))}}
	}
	config := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}

	f(nil, nil)
	f(volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), nil)
	f(volume(projected(config)), nil)
	f(volume(projected(config, token("vault"))), volume(corev1.VolumeSource{Projected: projectedTokens("vault")}))
	f(volume(projected(token("vault"), token(""))), volume(corev1.VolumeSource{Projected: projectedTokens("vault", "")}))
	f(volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", ReadOnly: new(true)}}),
		volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}))
	f(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}),
		volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}))
	f(volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), nil)
	f(volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "x"}}}}), volume(corev1.VolumeSource{Ephemeral: madeClaim}))
	disk := corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}
	f(volume(disk), volume(disk))

	// A pod with only a token for the API server shares that volume, whatever else it
	// mounts.
	plain := append(volume(projected(config, token(""))), volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})...)
	f(plain, plainVolumes)
	csi := volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})
	certificate := func(seconds int32) corev1.VolumeProjection {
		return corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: "example.com/s", MaxExpirationSeconds: &seconds,
		}}
	}
	f(volume(projected(config, certificate(86400))), volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s"}}},
	}}))
	f(append(volume(projected(token(""))), csi...), append(volume(corev1.VolumeSource{Projected: projectedTokens("")}), csi...))
	if got := trimVolumes(plain); &got[0] != &plainVolumes[0] {
		t.Error("got volumes of its own, want those that all pods share")
	}
}

func projectedTokens(audiences ...string) *corev1.ProjectedVolumeSource {
	volume := new(corev1.ProjectedVolumeSource)
	for _, audience := range audiences {
		volume.Sources = append(volume.Sources, projectedToken(audience))
	}
	return volume
}

// wirePod returns a pod as a Deployment creates it, with the volume that the admission
// plugin ServiceAccount adds. One in ten has a claim, too.
func wirePod(i int) *corev1.Pod {
	container := corev1.Container{
		Name: "server", Image: "registry.example.com/team/server:v1.2.3",
		VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-abcde",
			MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
	}
	for variable := range 20 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", variable), Value: "some value or other"})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i/20), Name: fmt.Sprintf("server-%d-abcde", i), GenerateName: "server-",
			UID: types.UID(fmt.Sprintf("5b3f0b4e-6a5e-4d0e-9d6e-%012d", i)), ResourceVersion: strconv.Itoa(100_000 + i),
			Labels:      map[string]string{"app": "server", "pod-template-hash": "6b555cbb46"},
			Annotations: map[string]string{"example.com/checksum": strings.Repeat("0123456789abcdef", 4)},
		},
		Spec: corev1.PodSpec{
			NodeName:           wireNodeName(i / 10),
			ServiceAccountName: "server", DeprecatedServiceAccount: "server",
			Containers: []corev1.Container{container, container},
			Volumes: []corev1.Volume{
				{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
						{ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
						}},
					},
				}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
	if i%10 == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-server-%d", i)},
		}})
	}
	return pod
}

func wireNodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255)
}

// TestKnownPod decodes random pods from protobuf and from JSON, and compares them with the
// decoders of k8s.io/api.
func TestKnownPod(t *testing.T) {
	start := seed.Of(t)
	fill := randfill.NewWithSeed(int64(start)).NilChance(0.3).NumElements(0, 3).Funcs(
		func(m *metav1.ManagedFieldsEntry, _ randfill.Continue) { m.Manager = "m" },
	)
	mirrors := 0
	for i := range 300 {
		var pod corev1.Pod
		fill.Fill(&pod.ObjectMeta)
		fill.Fill(&pod.Spec.Volumes)
		fill.Fill(&pod.Spec.NodeName)
		fill.Fill(&pod.Spec.ServiceAccountName)
		pod.Spec.HostNetwork, pod.Spec.TerminationGracePeriodSeconds = true, new(int64(30)) // skipped
		if i%3 == 0 {
			if pod.Annotations == nil {
				pod.Annotations = make(map[string]string)
			}
			pod.Annotations[corev1.MirrorPodAnnotationKey] = strconv.Itoa(i)
			pod.Annotations[metav1.InitialEventsAnnotationKey] = "true"
		}
		wire, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var again corev1.Pod // with empty slices and times as decoding returns them
		if err := again.Unmarshal(wire); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(&again)
		if err != nil {
			t.Fatal(err)
		}
		var fromWire, fromText knownPod
		if err := fromWire.Unmarshal(wire); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &fromText); err != nil {
			t.Fatal(err)
		}
		if got := fromWire.Annotations[metav1.InitialEventsAnnotationKey]; (got == "true") != (i%3 == 0) {
			t.Errorf("got the annotation %q of the bookmark behind all that there is", got)
		}
		meta := knownMeta{Name: again.Name, Namespace: again.Namespace, UID: again.UID, ResourceVersion: again.ResourceVersion,
			Annotations: again.Annotations}
		want := trimPod(&knownPod{knownMeta: meta, Spec: knownPodSpec{
			NodeName: again.Spec.NodeName, ServiceAccountName: again.Spec.ServiceAccountName, Volumes: again.Spec.Volumes,
		}})
		mirrors += len(want.Annotations)
		for _, got := range []*knownPod{&fromWire, &fromText} {
			if got := trimPod(got); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
		}
		if again := trimPod(want); !reflect.DeepEqual(again, want) {
			t.Fatalf("trimmed twice:\n got %+v\nwant %+v", again, want)
		}
		for n := range wire { // a truncated pod gives an error or fewer fields, and no panic
			_ = new(knownPod).Unmarshal(wire[:n])
		}
	}
	if mirrors < 100 {
		t.Errorf("got %d mirror pods, want at least 100", mirrors)
	}
}

// BenchmarkKnownPods reports how many bytes of the heap a decoded pod takes, without its
// entry in maps.
func BenchmarkKnownPods(b *testing.B) {
	const pods = 50_000
	all := make([]*knownPod, pods)
	for b.Loop() {
		clear(all)
		before := admissiontest.LiveHeap()
		for i := range all {
			wire, err := wirePod(i).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			var got knownPod
			if err := got.Unmarshal(wire); err != nil {
				b.Fatal(err)
			}
			all[i] = trimPod(&got)
		}
		b.ReportMetric(float64(admissiontest.LiveHeap()-before)/pods, "B/object")
	}
	runtime.KeepAlive(all)
}

// BenchmarkUnmarshal decodes a pod from protobuf, here and with k8s.io/api.
func BenchmarkUnmarshal(b *testing.B) {
	wire, err := wirePod(1).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(knownPod).Unmarshal(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(corev1.Pod).Unmarshal(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}

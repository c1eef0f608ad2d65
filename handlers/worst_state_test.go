//go:build linux

package handlers_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/handlers/podpreset"
	"github.com/fastadmit/fastadmit/handlers/podsecuritypolicy"
)

// configs are configurations of plugins that need one, or do more with one.
var configs = map[string][]byte{
	"EventRateLimit": []byte(`{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[
		{"type":"SourceAndObject","qps":1000000,"burst":1000000},{"type":"User","qps":1000000,"burst":1000000}]}`),
	"ImagePolicyWebhook": []byte(`{"imagePolicy":{"kubeConfigFile":"k","defaultAllow":true}}`),
	"PodNodeSelector":    []byte(`{"podNodeSelectorPluginConfig":{"namespace":"` + selectorOf(few) + `"}}`),
	"PodTolerationRestriction": []byte(`{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration",
		"default":[{"key":"d","operator":"Exists"}]}`),
	"ResourceQuota": []byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[
		{"resource":"pods","matchContains":["example.com"]},
		{"resource":"pods","matchScopes":[{"scopeName":"CrossNamespacePodAffinity","operator":"Exists"}]}]}`),
}

// unreachable is a kubeconfig of a server that refuses connections.
const unreachable = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
	"contexts":[{"name":"x","context":{"cluster":"c","user":""}}],"current-context":"x"}`

func configOf(plugin string) []byte {
	if config, ok := configs[plugin]; ok {
		return config
	}
	return pastConfigs[plugin]
}

// few is the number of elements in objects of the cluster that a review is compared with.
const few = 20

func selectorOf(n int) string {
	return times(n, "k#=v")
}

func tolerationsOf(n int) (tolerations []corev1.Toleration) {
	for i := range n {
		tolerations = append(tolerations,
			corev1.Toleration{Key: fmt.Sprint("k", i), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return tolerations
}

func amounts(n int, quantity string) corev1.ResourceList {
	list := corev1.ResourceList{"cpu": resource.MustParse(quantity), "memory": resource.MustParse(quantity)}
	for i := range n {
		list[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse(quantity)
	}
	return list
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "namespace", Name: name}
}

// state returns the objects of a cluster that make plugins do much work.
func state() []runtime.Object {
	hard := amounts(few, "1000000")
	for _, name := range []corev1.ResourceName{"requests.example.com/gpu", "pods", "count/pods"} {
		hard[name] = resource.MustParse("1000000")
	}
	used := make(corev1.ResourceList)
	for name := range hard {
		used[name] = resource.MustParse("0")
	}
	quota := func(name string, spec corev1.ResourceQuotaSpec) *corev1.ResourceQuota {
		spec.Hard = hard
		return &corev1.ResourceQuota{ObjectMeta: named(name), Spec: spec, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	item := func(kind corev1.LimitType) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: kind, Min: amounts(0, "1m"), Max: amounts(0, "1000"), MaxLimitRequestRatio: amounts(0, "10")}
	}
	defaults := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: amounts(2, "5m"), DefaultRequest: amounts(2, "5m")}
	return []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace",
			Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/audit": "restricted",
				"pod-security.kubernetes.io/warn": "baseline",
			},
			Annotations: map[string]string{
				"scheduler.alpha.kubernetes.io/node-selector":        selectorOf(few),
				"scheduler.alpha.kubernetes.io/defaultTolerations":   `[{"key":"k1","operator":"Exists"}]`,
				"scheduler.alpha.kubernetes.io/tolerationsWhitelist": `[{"key":"x","operator":"Exists"},{"operator":"Exists"}]`,
			}}},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "h", Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"k1": "v", "sandbox": "true"}, Tolerations: tolerationsOf(few)}},
		&corev1.LimitRange{ObjectMeta: named("limits"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			defaults, item(corev1.LimitTypeContainer), item(corev1.LimitTypePod), item(corev1.LimitTypePersistentVolumeClaim)}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace", Name: "limited",
			Annotations: map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}},
			Secrets: []corev1.ObjectReference{{Name: "s0"}, {Name: "s1"}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s1"}}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000, GlobalDefault: true},
		quota("all", corev1.ResourceQuotaSpec{}),
		quota("best-effort", corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort,
			corev1.ResourceQuotaScopeNotTerminating}}),
		quota("near", corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeCrossNamespacePodAffinity}}),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1",
			Labels: map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r"}}},
		&podsecuritypolicy.PodSecurityPolicy{ // changes all containers, and rejects as many fields as possible
			TypeMeta:   metav1.TypeMeta{APIVersion: "policies.fastadmit.io/v1beta1", Kind: "PodSecurityPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: podsecuritypolicy.Spec{
				RequiredDropCapabilities: []corev1.Capability{"ALL"}, Volumes: []string{"hostPath"},
				AllowedHostPaths:   []podsecuritypolicy.AllowedHostPath{{ReadOnly: true}},
				SELinux:            podsecuritypolicy.SELinuxOptions{Rule: "RunAsAny"},
				RunAsUser:          podsecuritypolicy.IDOptions{Rule: "MustRunAsNonRoot"},
				SupplementalGroups: podsecuritypolicy.IDOptions{Rule: "MustRunAs", Ranges: []podsecuritypolicy.IDRange{{Min: 1, Max: 2}}},
				FSGroup:            podsecuritypolicy.IDOptions{Rule: "RunAsAny"},
			},
		},
		&podpreset.PodPreset{
			TypeMeta:   metav1.TypeMeta{APIVersion: "settings.k8s.io/v1alpha1", Kind: "PodPreset"},
			ObjectMeta: named("preset"), Spec: podpreset.Spec{Env: []corev1.EnvVar{{Name: "A", Value: "b"}}},
		},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace", Name: "bound", UID: "u2"}, Spec: corev1.PodSpec{NodeName: "n1"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			Provisioner: "p", AllowVolumeExpansion: new(true)},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "web",
			Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": "true"}}},
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
			Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}},
	}
}

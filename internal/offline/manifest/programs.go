package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// programs are what reads objects that look like those of Kubernetes, and that no API server has. A key is a group, an apiVersion
// without a group, or a group or apiVersion with a kind. A group with a CustomResourceDefinition has a key with a kind, or none.
var programs = map[string]string{
	// Parts of Kubernetes, by the files that their flags name.
	"v1 Config":                                 "a kubeconfig, for kubectl",
	"apiserver.config.k8s.io":                   "for kube-apiserver",
	"apiserver.k8s.io":                          "for kube-apiserver",
	"audit.k8s.io":                              "for kube-apiserver",
	"pod-security.admission.config.k8s.io":      "for kube-apiserver",
	"podtolerationrestriction.admission.k8s.io": "for kube-apiserver",
	"resourcequota.admission.k8s.io":            "for kube-apiserver",
	"eventratelimit.admission.k8s.io":           "for kube-apiserver",
	"audit.k8s.io Event":                        "a request of an audit log, for fastadmit replay",
	"client.authentication.k8s.io":              "for kubectl",
	"kubectl.config.k8s.io":                     "for kubectl",
	"kubeadm.k8s.io":                            "for kubeadm",
	"kubelet.config.k8s.io":                     "for the kubelet",
	"kubeproxy.config.k8s.io":                   "for kube-proxy",
	"kubescheduler.config.k8s.io":               "for kube-scheduler",
	"kubecontrollermanager.config.k8s.io":       "for kube-controller-manager",
	"controller-runtime.sigs.k8s.io":            "for a controller",
	// Clusters for development.
	"kind.x-k8s.io":        "for kind",
	"k3d.io":               "for k3d",
	"ctlptl.dev":           "for ctlptl",
	"eksctl.io":            "for eksctl",
	"k0sctl.k0sproject.io": "for k0sctl",
	// Programs that build and render.
	"builtin":                              "for kustomize",
	"viaduct.ai":                           "for kustomize",
	"skaffold":                             "for skaffold",
	"kpt.dev Kptfile":                      "for kpt",
	"fn.kpt.dev":                           "for kpt",
	"tanka.dev":                            "for Tanka",
	"kapp.k14s.io":                         "for kapp",
	"kbld.k14s.io":                         "for kbld",
	"vendir.k14s.io":                       "for vendir",
	"krew.googlecontainertools.github.com": "for krew",
	// Tests.
	"cli.kyverno.io":                 "a test, for kyverno test",
	"chainsaw.kyverno.io":            "a test, for chainsaw",
	"test.gatekeeper.sh":             "a test, for gator verify",
	"gator.gatekeeper.sh":            "for gator policy",
	"kuttl.dev":                      "a test, for kuttl",
	"scorecard.operatorframework.io": "a test, for operator-sdk scorecard",
	"fastadmit.io TestSuite":         "a test, for fastadmit test",
	// Others.
	"fastadmit.io Configuration": "for fastadmit --config",
	"backstage.io":               "for Backstage",
	"scaffolder.backstage.io":    "for Backstage",
}

// A ProgramError means that an object is read by a program, and that no API server has its kind.
type ProgramError struct{ reader string }

func (e *ProgramError) Error() string {
	return "no API server has such objects: this one is " + e.reader
}

// ReadByProgram returns an error if objects of a kind that is unknown are read by a program, nil if not.
func ReadByProgram(t schema.GroupVersionKind) *ProgramError {
	version := t.GroupVersion().String()
	keys := []string{version + " " + t.Kind, t.Group + " " + t.Kind, t.Group}
	if t.Group == "" {
		keys = []string{version + " " + t.Kind, version}
	}
	for _, key := range keys {
		if reader, ok := programs[key]; ok {
			return &ProgramError{reader}
		}
	}
	return nil
}

// ReviewOfTest returns an error if an AdmissionReview has no uid: kube-apiserver sends none without, and gator reads such ones as
// the cases of a test.
func ReviewOfTest(text []byte) *ProgramError {
	var review struct {
		Request *struct {
			UID  any `json:"uid"`
			Kind any `json:"kind"`
		} `json:"request"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &review)
	if err != nil || review.Request == nil || review.Request.UID != nil || review.Request.Kind != nil {
		return nil
	}
	return &ProgramError{"the case of a test, without a uid and a kind, for gator verify"}
}

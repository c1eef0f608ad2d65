// The command v1.33 answers AdmissionReviews as the admission plugins of Kubernetes v1.33 do. Package released says
// what it reads and writes.
package main

import (
	"context"
	"flag"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	_ "k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"

	"github.com/fastadmit/fastadmit/e2e/released"
	"github.com/fastadmit/fastadmit/e2e/released/published"
)

func main() {
	released.Run(released.Release{
		Initializer: func(c kubernetes.Interface, d dynamic.Interface, i informers.SharedInformerFactory, a authorizer.Authorizer,
			ends <-chan struct{}, m meta.RESTMapper,
		) admission.PluginInitializer {
			return initializer.New(c, d, i, a, utilfeature.DefaultFeatureGate, ends, m)
		},
		Client: published.Client,
		Quotas: func(informers.SharedInformerFactory) (quota.Configuration, error) {
			return install.NewQuotaConfigurationForAdmission(), nil
		},
		Flags: flag.CommandLine, // where package defaulttolerationseconds registers them
		Audit: func(ctx context.Context) (context.Context, func() map[string]string) {
			ctx = audit.WithAuditContext(ctx)
			audited := audit.AuditContextFrom(ctx)
			audited.RequestAuditConfig.Level = auditinternal.LevelMetadata
			audited.Event.Level = auditinternal.LevelMetadata
			return ctx, func() map[string]string { return audited.Event.Annotations }
		},
	})
}

// A module of its own: the plugin that v1.10 was the last release to have. The staging modules are of
// v1.10. Two clients that cannot be had any more are stood for by modules in this folder.
module github.com/fastadmit/fastadmit/e2e/removed/v1.10

go 1.26.0

require (
	github.com/fastadmit/fastadmit/e2e/removed v0.0.0
	google.golang.org/api v0.1.0
	k8s.io/api v0.0.0-20180308224125-73d903622b73
	k8s.io/apimachinery v0.0.0-20180228050457-302974c03f7e
	k8s.io/apiserver v0.0.0-20180327025904-5ae41ac86efd
	k8s.io/kubernetes v1.10.13
)

require (
	cloud.google.com/go v0.34.0 // indirect
	github.com/docker/distribution v2.7.1+incompatible // indirect
	github.com/ghodss/yaml v1.0.0 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/glog v1.0.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/gofuzz v1.2.0 // indirect
	github.com/hawkular/hawkular-client-go v0.0.0 // indirect
	github.com/howeyc/gopass v0.0.0-20210920133722-c8aef6fb66ef // indirect
	github.com/imdario/mergo v0.3.5 // indirect
	github.com/influxdata/influxdb v1.1.1 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180228061459-e0a39a4cb421 // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/spf13/pflag v1.0.1 // indirect
	golang.org/x/crypto v0.21.0 // indirect
	golang.org/x/net v0.23.0 // indirect
	golang.org/x/oauth2 v0.10.0 // indirect
	golang.org/x/sys v0.18.0 // indirect
	golang.org/x/term v0.18.0 // indirect
	golang.org/x/text v0.14.0 // indirect
	golang.org/x/time v0.3.0 // indirect
	google.golang.org/appengine v1.6.7 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
	k8s.io/apiextensions-apiserver v0.0.0-20180327033742-750feebe2038 // indirect
	k8s.io/client-go v7.0.0+incompatible // indirect
)

replace github.com/fastadmit/fastadmit/e2e/removed => ../

replace github.com/hawkular/hawkular-client-go => ./hawkular

replace google.golang.org/api => ./googleapi

replace k8s.io/apimachinery => k8s.io/apimachinery v0.0.0-20180228050457-302974c03f7e

replace k8s.io/api => k8s.io/api v0.0.0-20180308224125-73d903622b73

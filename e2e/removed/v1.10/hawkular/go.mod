module github.com/hawkular/hawkular-client-go

go 1.26.0

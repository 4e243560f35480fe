// Deadlines and retries of proto/service_config.json for connect-es, which has no service configs.
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";

interface MethodConfig {
  name: { service: string; method: string }[];
  timeout?: string;
  retryPolicy?: {
    maxAttempts: number;
    initialBackoff: string;
    maxBackoff: string;
    backoffMultiplier: number;
    retryableStatusCodes: string[];
  };
}

const milliseconds = (seconds: string) => Number.parseFloat(seconds) * 1000;

/** Applies the configuration to unary calls. The caller repeats a stream, which may have begun. */
export function retry(serviceConfig: string): Interceptor {
  const policies = new Map<string, MethodConfig>();
  for (const config of JSON.parse(serviceConfig).methodConfig as MethodConfig[]) {
    for (const { service, method } of config.name) {
      policies.set(`${service}/${method}`, config);
    }
  }
  return (next) => async (request) => {
    const { timeout, retryPolicy } = policies.get(`${request.service.typeName}/${request.method.name}`) ?? {};
    if (request.stream || !retryPolicy) {
      return next(request);
    }
    // The deadline is that of all attempts.
    const deadline = timeout ? AbortSignal.timeout(milliseconds(timeout)) : request.signal;
    const signal = AbortSignal.any([request.signal, deadline]);
    let backoff = milliseconds(retryPolicy.initialBackoff);
    for (let attempt = 1; ; attempt++) {
      try {
        return await next({ ...request, signal });
      } catch (error) {
        const code = Code[ConnectError.from(error).code].toUpperCase();
        if (attempt === retryPolicy.maxAttempts || !retryPolicy.retryableStatusCodes.includes(code)) {
          throw error;
        }
      }
      // With jitter, so that clients do not come back together.
      await sleep(backoff * (0.8 + 0.4 * Math.random()), undefined, { signal });
      backoff = Math.min(backoff * retryPolicy.backoffMultiplier, milliseconds(retryPolicy.maxBackoff));
    }
  };
}
